//! A short spin before a future goes to sleep.
//!
//! To be woken by the driver costs some 50 us (a host function, a thread, the executor); to ask the stream costs
//! 0.2 us and is answered some 9 us after the launch of a small kernel. So the one future that is in flight asks for
//! at most [`max_spin`] before it leaves its waker, as long as that keeps paying: a spin that was in vain is tried
//! again only every [`RETRY`]th time. With several futures in flight nobody spins: the executor has better things
//! to do.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use cuda_core::{Result, Stream};

/// After a spin in vain, waits that go to sleep at once before the next one that spins.
pub const RETRY: u32 = 16;

static MAX_SPIN_NANOS: AtomicU64 = AtomicU64::new(20_000);
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
/// Waits that are to go to sleep at once.
static SKIP: AtomicU32 = AtomicU32::new(0);

/// How long a poll may spin; 20 us unless it was set.
pub fn max_spin() -> Duration {
    Duration::from_nanos(MAX_SPIN_NANOS.load(Ordering::Relaxed))
}

/// Sets how long a poll may spin, for the whole process; zero turns it off.
pub fn set_max_spin(spin: Duration) {
    let nanos = u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX);
    MAX_SPIN_NANOS.store(nanos, Ordering::Relaxed);
}

/// A future that has begun and not ended. One that is forgotten counts for ever: then nobody spins.
pub(crate) struct InFlight(());

impl InFlight {
    pub(crate) fn new() -> Self {
        IN_FLIGHT.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        IN_FLIGHT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How submission `number` of a stream ended, if that is known or can be had by a short spin.
pub(crate) fn outcome(stream: &Stream, number: u64) -> Option<Result<()>> {
    let known = stream.outcome(number);
    if known.is_some() || IN_FLIGHT.load(Ordering::Relaxed) != 1 || !worth_it() {
        return known;
    }
    let limit = max_spin();
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Err(error) = stream.query() {
            return Some(Err(error));
        }
        let known = stream.outcome(number);
        if known.is_some() {
            return known;
        }
        std::hint::spin_loop();
    }
    if !limit.is_zero() {
        SKIP.store(RETRY, Ordering::Relaxed);
    }
    None
}

fn worth_it() -> bool {
    let skip = SKIP.load(Ordering::Relaxed);
    if skip > 0 {
        // Two threads may count as one: it is only a habit.
        SKIP.store(skip - 1, Ordering::Relaxed);
    }
    skip == 0
}
