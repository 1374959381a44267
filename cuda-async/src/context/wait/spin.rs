//! A short spin before a future registers a waker.
//!
//! A wake needs two threads: the completion thread sees the progress, and the executor polls the task. A query of the
//! stream takes 0.2 us, and a small kernel is complete about 9 us after its launch. So a future that is the only one in
//! flight queries for at most [`max_spin`] before it registers its waker. After a spin that found no result, the next
//! [`RETRY`] waits do not spin. With several futures in flight no future spins, because the executor has other tasks to
//! run. A forgotten future stays in flight.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use cuda_core::{Result, Stream};

use crate::context::tree::RunInFlight;

/// The number of waits that do not spin after an unsuccessful spin.
pub const RETRY: u32 = 16;

/// The longest time that [`set_max_spin`] accepts. A spin blocks its executor thread for no longer than this.
pub const MAX_SPIN_LIMIT: Duration = Duration::from_millis(1);

static MAX_SPIN_NANOS: AtomicU64 = AtomicU64::new(20_000);
/// The number of coming waits that do not spin.
static SKIP: AtomicU32 = AtomicU32::new(0);

/// Returns the longest time for which a poll may spin; 20 us unless it was set.
pub fn max_spin() -> Duration {
    Duration::from_nanos(MAX_SPIN_NANOS.load(Ordering::Relaxed))
}

/// Sets the longest time for which a poll may spin, for the whole process. Zero turns spinning off. Times above
/// [`MAX_SPIN_LIMIT`] are reduced to it.
pub fn set_max_spin(spin: Duration) {
    let nanos = spin.min(MAX_SPIN_LIMIT).as_nanos() as u64;
    MAX_SPIN_NANOS.store(nanos, Ordering::Relaxed);
}

/// Returns the outcome of submission `number`, if it is known or a short spin finds it.
#[inline]
pub(crate) fn outcome(stream: &Stream, number: u64) -> Option<Result<()>> {
    let known = stream.outcome(number);
    if known.is_some() || !RunInFlight::is_only_one() {
        return known;
    }
    spin(stream, number)
}

fn spin(stream: &Stream, number: u64) -> Option<Result<()>> {
    let limit = max_spin();
    if limit.is_zero() || take_skip() {
        return None;
    }
    // Reading the clock costs as much as several queries of an idle stream, so the first query comes before it.
    let known = query(stream, number);
    if known.is_some() {
        return known;
    }
    let start = Instant::now();
    while start.elapsed() < limit {
        std::hint::spin_loop();
        let known = query(stream, number);
        if known.is_some() {
            return known;
        }
    }
    SKIP.store(RETRY, Ordering::Relaxed);
    None
}

#[inline]
fn query(stream: &Stream, number: u64) -> Option<Result<()>> {
    match stream.query() {
        Ok(_) => stream.outcome(number),
        Err(error) => Some(Err(error)),
    }
}

/// Returns whether this wait must not spin, and counts it.
fn take_skip() -> bool {
    let skip = SKIP.load(Ordering::Relaxed);
    if skip > 0 {
        // A race between threads may count two waits as one, which does no harm.
        SKIP.store(skip - 1, Ordering::Relaxed);
    }
    skip > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_max_spin_has_an_upper_limit() {
        let before = max_spin();
        set_max_spin(Duration::from_secs(60));
        assert_eq!(max_spin(), MAX_SPIN_LIMIT);
        set_max_spin(before);
    }
}
