//! Streams, and who is told of them.

use super::*;

#[test]
fn a_destroyed_stream_is_unknown() {
    let d = Device::new(1);
    d.request(Request::DestroyStream { id: B }).unwrap();
    let refused = d.put(B, Command::Record { event: EventId(1) });
    assert!(matches!(refused, Err(Error::OutOfRange { .. })));
    assert!(matches!(d.request(Request::Query { stream: B }), Err(Error::OutOfRange { .. })));
}

#[test]
fn a_sink_that_panics_stops_nothing() {
    let d = Device::new(1);
    d.put(A, Command::Notify { token: PANIC }).unwrap();
    d.put(A, Command::Notify { token: 1 }).unwrap();
    assert_eq!(d.notices.recv().unwrap().token, 1);
    d.launch(A, SHORT, 1).unwrap();
    d.synchronize(A).unwrap();
}

#[test]
fn short_kernels_overtake_long_ones() {
    let d = Device::new(2);
    const MORE: u64 = 12;
    for id in (10..10 + MORE).map(StreamId) {
        d.request(Request::CreateStream { id, priority: 0 }).unwrap();
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

/// Not even on a device of one thread.
#[test]
fn a_waker_that_blocks_holds_up_no_stream() {
    let d = Device::new(1);
    d.put(A, Command::Notify { token: BLOCK }).unwrap();
    d.fill(A, 5).unwrap();
    d.synchronize(A).unwrap();
    d.put(B, Command::Notify { token: 1 }).unwrap();
    assert_eq!(d.flag(), 5);
    assert!(d.notices.try_recv().is_err());
    d.go.send(()).unwrap();
    assert_eq!(d.notices.recv().unwrap().token, 1);
}

/// The device goes while its notices are being told, and by the thread that tells them: all are told.
#[test]
fn the_last_handle_may_go_in_a_waker() {
    struct Last {
        device: Mutex<Option<Arc<dyn Backend>>>,
        told: Sender<u64>,
    }
    impl NoticeSink for Last {
        fn notice(&self, notice: Notice) {
            let last = self.device.lock().unwrap().take();
            drop(last);
            self.told.send(notice.token).unwrap();
        }
    }
    for workers in [1, 3] {
        let (told, tokens) = channel();
        let sink = Arc::new(Last { device: Mutex::new(None), told });
        let mut options = CpuOptions::default();
        options.workers = Some(workers);
        let backend = CpuProvider::new(options).open(0, sink.clone()).unwrap();
        backend.request(Request::CreateStream { id: A, priority: 0 }).unwrap();
        for token in 1..=3 {
            // SAFETY: touches no memory.
            unsafe { backend.enqueue(A, Command::Notify { token }, &[]) }.unwrap();
        }
        *sink.device.lock().unwrap() = Some(backend);
        drop(sink);
        // All, and then everyone who could tell is gone.
        let all: Vec<_> = tokens.iter().collect();
        assert_eq!(all, [1, 2, 3]);
    }
}

/// Waking a thread for it would take longer than a small kernel.
#[test]
fn who_waits_runs_the_stream_if_nobody_has_begun() {
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
fn of_one_worker_only_one_stream_runs_at_a_time() {
    let d = Device::new(1);
    let go = d.hold(A);
    // Until the stream's own thread is in there.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let (send, done) = channel();
    std::thread::scope(|scope| {
        let backend = &d.backend;
        scope.spawn(move || {
            backend.request(Request::Synchronize { stream: B }).unwrap();
            send.send(()).unwrap();
        });
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(done.try_recv().is_err());
        drop(go);
        done.recv().unwrap();
    });
}
