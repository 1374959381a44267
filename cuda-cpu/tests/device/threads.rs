//! Many threads on the same streams, and those who wait for them.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use super::*;

/// Three streams are ready while a thread of the application pumps a fourth: all are pumped when it is done.
#[test]
fn streams_that_became_ready_while_a_waiting_thread_pumped_are_not_forgotten() {
    for _ in 0..5 {
        let d = Device::new(1);
        for id in (10..14).map(StreamId) {
            d.request(Request::CreateStream { id, priority: 0 }).unwrap();
        }
        // A waiting thread pumps A: its spin is ended by the host's write below.
        std::thread::scope(|scope| {
            let (entered, is_in) = channel();
            let (go, wait) = channel::<()>();
            let backend = &d.backend;
            let held = Mutex::new((entered, wait));
            let waiter = scope.spawn(move || {
                let here = std::thread::current().id();
                // Until this thread runs it itself.
                let held = Arc::new(held);
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
                    let flag = Region { alloc: FLAG, offset: 0 };
                    let from = HostRegion { block: block.id(), offset: 0 };
                    let upload = Command::Upload { from, to: flag, bytes: 4 };
                    let relocations = vec![Relocation { at: 0, region: flag }].into();
                    let launch = Launch {
                        function: FunctionId { module: ModuleId(1), entry: SHORT },
                        config: LaunchConfig::new(64, 32),
                        params: vec![0; 8].into(),
                        relocations,
                    };
                    // SAFETY: nothing else touches the block.
                    unsafe {
                        backend.enqueue(A, Command::Launch(launch), &[]).unwrap();
                        backend.enqueue(A, upload, &[Arc::new(block)]).unwrap();
                    }
                    now.store(true, Ordering::SeqCst);
                    backend.request(Request::Synchronize { stream: A }).unwrap();
                    if is_told.try_recv().is_ok() {
                        return true;
                    }
                }
                false
            });
            is_in.recv_timeout(Duration::from_secs(20)).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            // Two streams, or more, with something to tell.
            for id in 10..14 {
                d.put(StreamId(id), Command::Notify { token: id }).unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
            go.send(()).unwrap();
            assert!(waiter.join().unwrap());
            for _ in 10..14 {
                d.notices.recv_timeout(Duration::from_secs(5)).expect("a stream is forgotten");
            }
        });
    }
}

/// Two threads put allocations and frees into the same stream of a device that is nearly full.
#[test]
fn threads_that_share_a_full_stream_are_served() {
    let mut options = CpuOptions::default();
    options.workers = Some(2);
    options.memory = Some(1 << 20);
    let d = Device::with(options);
    let (send, done) = channel();
    for thread in 0..3_u64 {
        let (backend, send) = (d.backend.clone(), send.clone());
        std::thread::spawn(move || {
            for i in 0..20_000 {
                let id = AllocId(100 + thread * 1_000_000 + i);
                // SAFETY: no host memory.
                unsafe {
                    if backend.enqueue(A, Command::Alloc { id, bytes: 700 << 10 }, &[]).is_ok() {
                        backend.enqueue(A, Command::Free { id }, &[]).unwrap();
                    }
                }
            }
            backend.request(Request::Synchronize { stream: A }).unwrap();
            send.send(()).unwrap();
        });
    }
    for _ in 0..3 {
        done.recv_timeout(Duration::from_secs(60)).expect("a stream hangs");
    }
}

/// Two threads record and wait for each other's events on two streams.
#[test]
fn threads_that_record_and_wait_across_do_not_lock_up() {
    let d = Device::new(2);
    let (send, done) = channel();
    for thread in 0..4_u64 {
        let (backend, send) = (d.backend.clone(), send.clone());
        std::thread::spawn(move || {
            for i in 0..20_000 {
                let on = if (i + thread) % 2 == 0 { A } else { B };
                let other = if on == A { B } else { A };
                let (e, f) = (EventId(1 + (thread + i) % 2), EventId(1 + (thread + i + 1) % 2));
                // SAFETY: no host memory.
                unsafe {
                    backend.enqueue(on, Command::Record { event: e }, &[]).unwrap();
                    backend.enqueue(other, Command::Wait { event: e }, &[]).unwrap();
                    backend.enqueue(on, Command::Wait { event: f }, &[]).unwrap();
                }
            }
            backend.request(Request::Synchronize { stream: A }).unwrap();
            backend.request(Request::Synchronize { stream: B }).unwrap();
            send.send(()).unwrap();
        });
    }
    for _ in 0..4 {
        done.recv_timeout(Duration::from_secs(60)).expect("a stream hangs");
    }
}

/// Everything at once: several wait for the same streams, with resets, destruction and adversarial timing.
#[test]
fn a_storm() {
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
        let (send, done) = channel();
        const THREADS: u64 = 6;
        for thread in 0..THREADS {
            let (backend, send) = (d.backend.clone(), send.clone());
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
                    let stream = StreamId(1 + next(6));
                    let flag = Region { alloc: FLAG, offset: 0 };
                    let relocation = [Relocation { at: 0, region: flag }];
                    let launch = |entry| {
                        Command::Launch(Launch {
                            function: FunctionId { module: ModuleId(1), entry },
                            config: LaunchConfig::new(next_blocks(i), 32),
                            params: vec![0; 8].into(),
                            relocations: relocation.to_vec().into(),
                        })
                    };
                    // SAFETY: no host memory.
                    let _ = unsafe {
                        match next(14) {
                            0..=3 => backend.enqueue(stream, launch(SHORT), &[]),
                            4 if next(8) == 0 => backend.enqueue(stream, launch(WRONG), &[]),
                            5 => backend.enqueue(stream, Command::Notify { token: 1 }, &[]),
                            6..=9 => backend.request(Request::Synchronize { stream }).map(drop),
                            10 => backend.request(Request::Query { stream }).map(drop),
                            11 if next(4) == 0 => backend.request(Request::Reset).map(drop),
                            12 if stream.0 > 2 => {
                                backend.request(Request::DestroyStream { id: stream }).map(drop)
                            }
                            _ if stream.0 > 2 => backend
                                .request(Request::CreateStream { id: stream, priority: 0 })
                                .map(drop),
                            _ => backend.enqueue(stream, Command::Notify { token: 2 }, &[]),
                        }
                    };
                }
                send.send(()).unwrap();
            });
        }
        for _ in 0..THREADS {
            done.recv_timeout(Duration::from_secs(60))
                .unwrap_or_else(|_| panic!("hangs: {workers} workers, {timing:?}"));
        }
        d.request(Request::Reset).unwrap();
        d.fill(A, 9).unwrap();
        d.synchronize(A).unwrap();
        assert_eq!(d.flag(), 9);
    }
}

fn next_blocks(i: u64) -> u32 {
    1 + (i % 5) as u32 * 7
}
