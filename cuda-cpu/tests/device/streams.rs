//! Streams, and the threads that run them.

use cuda_core::{Backend, NoticeSink, protocol::Notice};

use super::{
    client::{BLOCK, PANIC},
    *,
};

#[test]
fn retired_stream_is_unknown() {
    let d = Device::new(1);
    d.client.retire_stream(B);
    let refused = d.submit(B, Work::Join);
    assert!(matches!(refused, Err(Error::NoSuchObject { .. })));
    assert!(matches!(d.client.peek(B), Err(Error::NoSuchObject { .. })));
}

#[test]
fn sink_that_panics_stops_no_stream() {
    let d = Device::new(1);
    d.client.create_stream(PANIC);
    d.join(PANIC, &[]);
    d.want(PANIC);
    let last = d.want(A);
    assert_eq!(d.next_report(), last);
    d.launch(A, SHORT, 1).unwrap();
    d.synchronize(A).unwrap();
}

#[test]
fn short_kernels_overtake_long_ones() {
    let d = Device::new(2);
    const MORE: u64 = 12;
    for id in (10..10 + MORE).map(StreamId) {
        d.client.create_stream(id);
        d.launch(id, SPIN, 4).unwrap();
    }
    for _ in 0..10 {
        d.launch(B, SHORT, 100).unwrap();
        d.synchronize(B).unwrap();
    }
    d.fill(B, 1).unwrap();
    for id in (10..10 + MORE).map(StreamId) {
        d.synchronize(id).unwrap();
    }
}

/// Holds on a device of one thread, too.
#[test]
fn waker_that_blocks_holds_up_no_stream() {
    let d = Device::new(1);
    d.client.create_stream(BLOCK);
    d.join(BLOCK, &[]);
    d.want(BLOCK);
    d.fill(A, 5).unwrap();
    d.synchronize(A).unwrap();
    assert_eq!(d.flag(), 5);
    let last = d.want(B);
    d.synchronize(B).unwrap();
    assert!(d.notices.try_recv().is_err());
    d.go.send(()).unwrap();
    assert_eq!(d.next_report(), last);
}

/// The thread that delivers the notices drops the device. All notices are delivered.
#[test]
fn waker_may_drop_the_last_handle() {
    struct Last {
        device: Mutex<Option<Arc<dyn Backend>>>,
        reports: Sender<StreamId>,
    }
    // SAFETY: forwards nothing.
    unsafe impl NoticeSink for Last {
        unsafe fn notice(&self, notice: Notice) {
            let last = self.device.lock().unwrap().take();
            drop(last);
            let Notice::Progress { stream, .. } = notice else { panic!("{notice:?}") };
            self.reports.send(stream).unwrap();
        }
    }
    for workers in [1, 3] {
        let (send, reports) = channel();
        let sink = Arc::new(Last { device: Mutex::new(None), reports: send });
        let mut options = CpuOptions::default();
        options.workers = Some(workers);
        let client = Client::new(CpuProvider::new(options).open(0, sink.clone()).unwrap());
        // No report is delivered before the device is where the sink takes it from.
        let mut held = sink.device.lock().unwrap();
        for id in (1..=3).map(StreamId) {
            client.create_stream(id);
            client.want(client.submit(id, &[], Work::Join, &[]).unwrap());
        }
        *held = Some(client.backend.clone());
        drop(client);
        drop(held);
        drop(sink);
        // The channel ends when the device and its sink are gone.
        let mut all: Vec<_> = reports.iter().collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3].map(StreamId));
    }
}

/// Waking another thread would take longer than a small kernel.
#[test]
fn blocked_thread_runs_the_stream_if_no_other_has_begun() {
    let d = Device::new(2);
    let here = std::thread::current().id();
    let (send, dropped_on) = channel();
    let ran_here = (0..10_000).any(|_| {
        let send = send.clone();
        let on_drop = move |_| send.send(std::thread::current().id()).unwrap();
        // SAFETY: 64 bytes that are zeroed and never freed.
        let block = unsafe { HostBlock::from_raw(leaked(), 64, on_drop) };
        d.launch(A, SHORT, 64).unwrap();
        d.upload(A, block);
        d.synchronize(A).unwrap();
        dropped_on.recv().unwrap() == here
    });
    assert!(ran_here);
}

#[test]
fn one_worker_runs_one_stream_at_a_time() {
    let d = Device::new(1);
    let go = d.hold(A);
    let other = d.join(B, &[]);
    // Until the stream's own thread runs it.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let (send, done) = channel();
    std::thread::scope(|scope| {
        let client = &d.client;
        scope.spawn(move || {
            client.block_until(other).unwrap();
            send.send(()).unwrap();
        });
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(done.try_recv().is_err());
        drop(go);
        done.recv().unwrap();
    });
}
