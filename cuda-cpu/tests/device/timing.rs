//! Adversarial timing.

use std::time::{Duration, Instant};

use super::*;

fn adversarial(seed: u64, workers: usize, max_delay: Duration) -> Device {
    let mut options = CpuOptions::default();
    options.workers = Some(workers);
    options.timing = Timing::Adversarial { seed, max_delay };
    Device::with(options)
}

/// Within a few rounds, each of the two streams runs first at least once.
#[test]
fn unordered_streams_run_in_both_orders() {
    let d = adversarial(1, 2, Duration::from_millis(2));
    let mut seen = [false; 2];
    for _ in 0..200 {
        d.fill(A, 1).unwrap();
        d.fill(B, 2).unwrap();
        d.synchronize(A).unwrap();
        d.synchronize(B).unwrap();
        seen[d.flag() as usize - 1] = true;
        if seen == [true; 2] {
            return;
        }
    }
    panic!("always the same order");
}

#[test]
fn ordered_streams_keep_their_order_under_delays() {
    let d = adversarial(2, 2, Duration::from_micros(500));
    for round in 0..100_u32 {
        let ticket = d.fill(A, round).unwrap();
        assert_eq!(d.read(B, 0, &[ticket]), Ok(round));
    }
}

#[test]
fn use_before_the_allocation_of_another_stream_faults() {
    let d = adversarial(3, 2, Duration::from_micros(500));
    let go = d.hold(A);
    d.client.allocate(A, AllocId(9), 64).unwrap();
    let to = Region { alloc: AllocId(9), offset: 0 };
    d.submit(B, Work::Fill { to, pattern: Pattern::Word(1), count: 1 }).unwrap();
    assert!(is_fault(&d.synchronize(B).unwrap_err(), FaultKind::IllegalAddress));
    drop(go);
}

/// On one thread, delayed streams do not wait for each other.
#[test]
fn held_back_streams_take_no_thread() {
    const STREAMS: u64 = 50;
    const MAX: Duration = Duration::from_millis(40);
    let d = adversarial(4, 1, MAX);
    let streams = || (10..10 + STREAMS).map(StreamId);
    streams().for_each(|id| d.client.create_stream(id));
    let start = Instant::now();
    for id in streams() {
        (0..32).for_each(|_| _ = d.join(id, &[]));
    }
    streams().for_each(|id| d.synchronize(id).unwrap());
    // Two stalls per stream on average. One after the other, they would take four seconds.
    assert!(start.elapsed() < MAX * STREAMS as u32, "{:?}", start.elapsed());
}
