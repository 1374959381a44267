//! How long a one-threaded executor keeps its other tasks waiting while something is awaited on it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Builder, Runtime},
    task::yield_now,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    done,
    histogram::{Histogram, nanos},
};

/// What is measured, as the tables call it.
pub const PULSES: [(&str, Pulse); 2] =
    [("lateness of a 1 ms tick", Pulse::Ticks), ("gap between turns, at any moment", Pulse::Turns)];

/// What the other task does.
#[derive(Clone, Copy)]
pub enum Pulse {
    /// Waits for the next of a row of ticks, a millisecond apart. Counts how late each comes; tokio's clock
    /// itself is a millisecond coarse.
    Ticks,
    /// Asks for its next turn at once, for ever. Counts the gaps between two turns, each as often as it is
    /// long: half of all moments lie in gaps of at most the median.
    Turns,
}

/// How long the pulse beats before and after.
const SETTLE: Duration = Duration::from_millis(5);

type Record = Arc<Mutex<Histogram>>;

/// A one-threaded executor.
pub fn one_thread() -> Runtime {
    done(Builder::new_current_thread().enable_time().build())
}

/// Runs `work` on a one-threaded executor beside a pulse, and prints how late the pulse was.
pub fn beside(what: &str, how: &str, pulse: Pulse, work: impl Future<Output = ()>) {
    let record = Arc::new(Mutex::new(Histogram::new()));
    let executor = one_thread();
    executor.block_on(async {
        let beat = match pulse {
            Pulse::Ticks => tokio::spawn(ticks(record.clone())),
            Pulse::Turns => tokio::spawn(turns(record.clone())),
        };
        // Work that never lets go of the thread must not keep the pulse from being counted.
        sleep(SETTLE).await;
        work.await;
        sleep(SETTLE).await;
        beat.abort();
    });
    drop(executor);
    let record = record.lock().unwrap_or_else(PoisonError::into_inner);
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    let [p50, p99] = [0.5, 0.99].map(|share| micros(record.quantile(share)));
    println!("| {what} | {how} | {p50:.1} | {p99:.1} | {:.1} |", micros(record.max()));
}

async fn ticks(record: Record) {
    let mut interval = interval(Duration::from_millis(1));
    // Ticks that were missed come one after the other, each as late as it is.
    interval.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        let due = interval.tick().await;
        add(&record, due.elapsed(), 1);
    }
}

async fn turns(record: Record) {
    let mut last = Instant::now();
    loop {
        yield_now().await;
        let now = Instant::now();
        add(&record, now - last, nanos(now - last));
        last = now;
    }
}

fn add(record: &Record, late: Duration, weight: u64) {
    record.lock().unwrap_or_else(PoisonError::into_inner).add(late, weight);
}
