//! Adversarial timing.

use std::time::{Duration, Instant};

use super::*;

fn adversarial(seed: u64, workers: usize, max_delay: Duration) -> Device {
    let mut options = CpuOptions::default();
    options.workers = Some(workers);
    options.timing = Timing::Adversarial { seed, max_delay };
    Device::with(options)
}

/// Two streams that nothing orders: within a few rounds each is the first once.
#[test]
fn what_is_not_ordered_happens_in_both_orders() {
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

/// What is ordered stays so.
#[test]
fn waits_hold_whatever_the_delays() {
    let d = adversarial(2, 2, Duration::from_micros(500));
    for round in 0..100_u32 {
        d.fill(A, round).unwrap();
        d.put(A, Command::Record { event: EventId(1) }).unwrap();
        d.put(B, Command::Wait { event: EventId(1) }).unwrap();
        assert_eq!(d.flag(), round);
    }
}

/// Memory that is used before its stream has made it is not there.
#[test]
fn memory_comes_into_being_on_its_stream() {
    let d = adversarial(3, 2, Duration::from_micros(500));
    let go = d.hold(A);
    d.put(A, Command::Alloc { id: AllocId(9), bytes: 64 }).unwrap();
    let to = Region { alloc: AllocId(9), offset: 0 };
    d.put(B, Command::Fill { to, pattern: Pattern::Word(1), count: 1 }).unwrap();
    assert!(is_lost_by(&d.synchronize(B).unwrap_err(), FaultKind::IllegalAddress));
    drop(go);
}

/// On one thread: streams that are held back do not wait for each other.
#[test]
fn a_stream_that_is_held_back_holds_no_thread() {
    const STREAMS: u64 = 50;
    const MAX: Duration = Duration::from_millis(40);
    let d = adversarial(4, 1, MAX);
    let streams = || (10..10 + STREAMS).map(StreamId);
    for id in streams() {
        d.request(Request::CreateStream { id, priority: 0 }).unwrap();
    }
    let start = Instant::now();
    for id in streams() {
        (0..32).for_each(|_| d.put(id, Command::Record { event: EventId(id.0) }).unwrap());
    }
    streams().for_each(|id| _ = d.synchronize(id).unwrap());
    // Two stalls a stream, on average: four seconds one after the other.
    assert!(start.elapsed() < MAX * STREAMS as u32, "{:?}", start.elapsed());
}
