//! Many threads on the same streams, and threads that wait for them.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use super::*;

/// Four streams become ready while a thread of the application pumps a fifth. All are pumped when it is done.
#[test]
fn streams_that_become_ready_while_a_blocked_thread_pumps_all_run() {
    for _ in 0..5 {
        let d = Device::new(1);
        for id in (10..14).map(StreamId) {
            d.client.create_stream(id);
        }
        // A waiting thread pumps A, until it drops a block there.
        std::thread::scope(|scope| {
            let (entered, is_in) = channel();
            let (go, wait) = channel::<()>();
            let client = &d.client;
            let held = Mutex::new((entered, wait));
            let waiter = scope.spawn(move || {
                let here = std::thread::current().id();
                let held = Arc::new(held);
                // Until this thread drops the block itself.
                for _ in 0..100_000 {
                    let (told, is_told) = channel();
                    let (own, told) = (held.clone(), Mutex::new(told));
                    let now = Arc::new(AtomicBool::new(false));
                    let waits = now.clone();
                    let on_drop = move |_| {
                        if std::thread::current().id() == here && waits.load(Ordering::SeqCst) {
                            let held = own.lock().unwrap();
                            held.0.send(()).unwrap();
                            _ = held.1.recv();
                            _ = told.lock().unwrap().send(true);
                        }
                    };
                    // SAFETY: 64 bytes that are zeroed and never freed.
                    let block = unsafe { HostBlock::from_raw(leaked(), 64, on_drop) };
                    let from = HostRegion { block: block.id(), offset: 0 };
                    let upload = Work::Upload { from, to: START, bytes: 4 };
                    client.submit(A, &[], launch(SHORT, 64), &[]).unwrap();
                    let ticket = client.submit(A, &[], upload, &[Arc::new(block)]).unwrap();
                    now.store(true, Ordering::SeqCst);
                    client.block_until(ticket).unwrap();
                    if is_told.try_recv().is_ok() {
                        return true;
                    }
                }
                false
            });
            is_in.recv_timeout(Duration::from_secs(20)).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            // Two or more streams have a report to deliver.
            for id in (10..14).map(StreamId) {
                d.join(id, &[]);
                d.want(id);
                std::thread::sleep(Duration::from_millis(10));
            }
            go.send(()).unwrap();
            assert!(waiter.join().unwrap());
            for _ in 10..14 {
                d.notices.recv_timeout(Duration::from_secs(5)).expect("a stream does not run");
            }
        });
    }
}

fn launch(entry: u32, blocks: u32) -> Work<'static> {
    let flag = Relocation { at: 0, region: START, bytes: 4, access: Access::Read };
    Work::Launch(Launch {
        function: FunctionId { module: ModuleId(1), entry },
        config: LaunchConfig::new(blocks, 32),
        params: vec![0; 8].into(),
        relocations: vec![flag].into(),
        variables: Default::default(),
    })
}

/// Three threads allocate and free on one stream of a device that is nearly full.
#[test]
fn allocations_of_many_threads_on_a_full_device_all_end() {
    let mut options = CpuOptions::default();
    options.workers = Some(2);
    options.memory = Some(1 << 20);
    let d = Device::with(options);
    let (send, done) = channel();
    for thread in 0..3_u64 {
        let (client, send) = (d.client.clone(), send.clone());
        std::thread::spawn(move || {
            for i in 0..20_000 {
                let id = AllocId(100 + thread * 1_000_000 + i);
                if client.allocate(A, id, 700 << 10).is_ok() {
                    client.free(A, id, &[]).unwrap();
                }
            }
            client.drain(A);
            send.send(()).unwrap();
        });
    }
    for _ in 0..3 {
        done.recv_timeout(Duration::from_secs(60)).expect("a stream hangs");
    }
}

/// Four threads order two streams after each other, in both directions.
#[test]
fn streams_ordered_after_each_other_by_many_threads_do_not_deadlock() {
    let d = Device::new(2);
    let (send, done) = channel();
    for thread in 0..4_u64 {
        let (client, send) = (d.client.clone(), send.clone());
        std::thread::spawn(move || {
            for i in 0..20_000 {
                let on = if (i + thread) % 2 == 0 { A } else { B };
                let other = if on == A { B } else { A };
                let ticket = client.submit(on, &[], Work::Join, &[]).unwrap();
                client.submit(other, &[ticket], Work::Join, &[]).unwrap();
                client.submit(on, &[client.last(other)], Work::Join, &[]).unwrap();
            }
            client.drain(A);
            client.drain(B);
            send.send(()).unwrap();
        });
    }
    for _ in 0..4 {
        done.recv_timeout(Duration::from_secs(60)).expect("a stream hangs");
    }
}

/// The streams that the threads of a test use. All but A and B are retired and replaced again and again.
struct Slots {
    slots: [Mutex<StreamId>; 6],
    next: AtomicU64,
}

impl Slots {
    fn new(client: &Client) -> Self {
        let slots = [1, 2, 3, 4, 5, 6].map(|id| Mutex::new(StreamId(id)));
        (3..=6).for_each(|id| client.create_stream(StreamId(id)));
        Self { slots, next: AtomicU64::new(7) }
    }

    fn replace(&self, client: &Client, slot: usize) {
        let mut id = self.slots[slot].lock().unwrap();
        client.retire_stream(*id);
        *id = StreamId(self.next.fetch_add(1, Ordering::Relaxed));
        client.create_stream(*id);
    }
}

/// Several threads submit to the same streams and wait for them, with resets, retired streams and adversarial timing.
#[test]
fn all_waits_end_under_load() {
    for (workers, timing) in [
        (1, Timing::AsFastAsPossible),
        (2, Timing::AsFastAsPossible),
        (1, Timing::Adversarial { seed: 3, max_delay: Duration::from_millis(2) }),
        (2, Timing::Adversarial { seed: 4, max_delay: Duration::from_millis(2) }),
    ] {
        let mut options = CpuOptions::default();
        options.workers = Some(workers);
        options.timing = timing;
        let d = Device::with(options);
        let slots = Arc::new(Slots::new(&d.client));
        let (send, done) = channel();
        const THREADS: u64 = 6;
        for thread in 0..THREADS {
            let (client, send, slots) = (d.client.clone(), send.clone(), slots.clone());
            std::thread::spawn(move || {
                let mut x = thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                let mut next = |n: u64| {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    x % n
                };
                let rounds = if matches!(timing, Timing::AsFastAsPossible) { 3000 } else { 60 };
                for i in 0..rounds {
                    let slot = next(6) as usize;
                    // Held, so that no thread retires the stream meanwhile.
                    let held = slots.slots[slot].lock().unwrap();
                    let (stream, blocks) = (*held, 1 + (i % 5) as u32 * 7);
                    // Errors are those of a lost device.
                    match next(14) {
                        0..=3 => _ = client.submit(stream, &[], launch(SHORT, blocks), &[]),
                        4 if next(8) == 0 => {
                            _ = client.submit(stream, &[], launch(TRAP, blocks), &[]);
                        }
                        5 => client.want(client.last(stream)),
                        6..=9 => {
                            let last = client.last(stream);
                            drop(held);
                            // The stream may be retired by now.
                            _ = client.block_until(last);
                        }
                        10 => _ = client.peek(stream).unwrap(),
                        11 if next(4) == 0 => {
                            drop(held);
                            client.reset();
                        }
                        12 if slot > 1 => {
                            drop(held);
                            slots.replace(&client, slot);
                        }
                        _ => {
                            drop(held);
                            // The other stream may be retired by now.
                            let other = *slots.slots[next(6) as usize].lock().unwrap();
                            let after = client.last(other);
                            let held = slots.slots[slot].lock().unwrap();
                            _ = client.submit(*held, &[after], Work::Join, &[]);
                        }
                    }
                }
                send.send(()).unwrap();
            });
        }
        for _ in 0..THREADS {
            done.recv_timeout(Duration::from_secs(60))
                .unwrap_or_else(|_| panic!("hangs: {workers} workers, {timing:?}"));
        }
        d.client.reset();
        let filled = d.fill(A, 9).unwrap();
        assert_eq!(d.read(B, 0, &[filled]), Ok(9));
    }
}
