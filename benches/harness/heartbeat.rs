//! Measures the delay of the other tasks of a one-threaded executor while work is awaited on it.

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

/// The measured delays, with their names in the tables.
pub const PULSES: [(&str, Pulse); 2] =
    [("lateness of a 1 ms tick", Pulse::Ticks), ("gap between turns, at any moment", Pulse::Turns)];

/// The behavior of the task that measures the delay.
#[derive(Clone, Copy)]
pub enum Pulse {
    /// Waits for ticks, one each millisecond, and records the lateness of each. The resolution of tokio's clock is a
    /// millisecond.
    Ticks,
    /// Yields in a loop and records the gaps between two turns, each weighted by its length: half of all moments lie in
    /// gaps of at most the median.
    Turns,
}

/// The time for which the pulse runs before and after the work.
const SETTLE: Duration = Duration::from_millis(5);

type Record = Arc<Mutex<Histogram>>;

/// Creates a one-threaded executor.
pub fn one_thread() -> Runtime {
    done(Builder::new_current_thread().enable_time().build())
}

/// Runs `work` and a pulse on a one-threaded executor, and prints the delay of the pulse.
pub fn beside(what: &str, how: &str, pulse: Pulse, work: impl Future<Output = ()>) {
    let record = Arc::new(Mutex::new(Histogram::new()));
    let executor = one_thread();
    executor.block_on(async {
        let beat = match pulse {
            Pulse::Ticks => tokio::spawn(ticks(record.clone())),
            Pulse::Turns => tokio::spawn(turns(record.clone())),
        };
        // Records the last gap even if the work never yielded.
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
    // Missed ticks follow immediately, each with its own lateness.
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
