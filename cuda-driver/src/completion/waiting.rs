//! The option of a device that chooses how it reports progress, and the waits that follow from it: the times for which
//! a thread that waits for streams spins and sleeps, and the time after which it queries the streams.

use std::time::Duration;

use cuda_core::{
    internals::sync::{self, spin_loop},
    protocol::Result,
};

/// The way in which a CUDA device reports progress. In both, a thread of the device learns that work is complete, and
/// wakes the waiting tasks. With nothing in flight it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completion {
    /// An event is recorded behind the work, and the completion thread queries it. The stream is not delayed, and the
    /// wake comes some microseconds after the work. The default.
    Polled {
        /// The time for which the thread spins after a report, or after a new request for one. Then it sleeps between
        /// checks. Each sleep lasts 1/64 of the time waited so far, limited to 5 to 60 us. In waits longer than 15 ms
        /// it lasts 1/256 of that time. While reports are closer together than `spin`, the thread keeps a core busy.
        spin: Duration,
    },
    /// The driver calls a host function on its own thread, and the function wakes the completion thread. No thread
    /// spins. A wake takes about 20 us more, and the stream runs no work while the function runs.
    HostFunction,
}

impl Default for Completion {
    /// Returns [`Polled`](Completion::Polled) with a spin of 500 us, or of 20 us with fewer than four cores.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = Duration::from_micros(if cores < 4 { 20 } else { 500 });
        Self::Polled { spin }
    }
}

/// Streams with outstanding reports are queried after this time without a report. After a fault the device takes about
/// three times as long to return an error.
const WATCH: Duration = Duration::from_millis(50);

/// The shortest sleep; waking up costs about as much.
const SHORTEST_SLEEP: Duration = Duration::from_micros(5);

/// The longest sleep in a wait of up to 15 ms. Tasks whose work ends during one sleep wake at once, and their polls
/// delay the executor's other tasks.
const MEDIUM_SLEEP: Duration = Duration::from_micros(60);

/// The time that a caller's thread spins before it sleeps between checks.
const SPIN: Duration = Duration::from_micros(50);

/// The next step of a waiting thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Check again at once.
    Spin,
    /// Check again after this time, or when signaled.
    Sleep(Duration),
    /// Query the streams, then check again.
    Query,
    /// Sleep until signaled.
    Park,
}

/// Returns the next step. `idle` means that no entry is watched. `since_active` is the time since a report was
/// delivered or an entry came. `since_check` is the time since a report was delivered, the streams were queried, or the
/// first entry came.
pub(super) fn next_step(
    completion: Completion,
    idle: bool,
    since_active: Duration,
    since_check: Duration,
) -> Step {
    let spin = match completion {
        Completion::Polled { spin } => spin,
        Completion::HostFunction => Duration::ZERO,
    };
    match (idle, since_active < spin) {
        (_, true) if since_check < WATCH || idle => Step::Spin,
        (true, _) => Step::Park,
        (false, _) if since_check >= WATCH => Step::Query,
        _ => {
            let rest = WATCH - since_check;
            match completion {
                Completion::Polled { .. } => Step::Sleep(sleep_after(since_active).min(rest)),
                Completion::HostFunction => Step::Sleep(rest),
            }
        }
    }
}

/// Returns the next sleep of a wait that has lasted for `wait`. After a long wait, a short delay matters less.
fn sleep_after(wait: Duration) -> Duration {
    let (short, long) = (wait / 64, wait / 256);
    short.clamp(SHORTEST_SLEEP, MEDIUM_SLEEP).max(long)
}

/// Blocks until `passed` returns true. The completion thread must be watching a checkpoint for that. Calls `query`
/// every 50 ms, and once at the end, so that a fault is found.
///
/// # Errors
/// The errors of `passed` and `query`.
pub(crate) fn block_on_report(
    mut passed: impl FnMut() -> Result<bool>,
    mut query: impl FnMut() -> Result<()>,
) -> Result<()> {
    let polled = Completion::Polled { spin: SPIN };
    let start = sync::now();
    let mut queried = start;
    while !passed()? {
        let now = sync::now();
        match next_step(polled, false, now - start, now - queried) {
            Step::Spin | Step::Park => spin_loop(),
            Step::Sleep(time) => std::thread::sleep(time),
            Step::Query => {
                query()?;
                queried = sync::now();
            }
        }
    }
    query()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use cuda_core::protocol::Error;

    use crate::streams::Passed;

    const POLLED: Completion = Completion::Polled { spin: Duration::from_micros(200) };

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn polling_thread_spins_first_then_sleeps_a_part_of_the_wait() {
        assert_eq!(next_step(POLLED, false, us(199), us(199)), Step::Spin);
        let short = Completion::Polled { spin: us(20) };
        assert_eq!(next_step(short, false, us(100), us(100)), Step::Sleep(SHORTEST_SLEEP));
        assert_eq!(next_step(POLLED, false, us(3200), us(3200)), Step::Sleep(us(50)));
        assert_eq!(next_step(POLLED, false, us(10_000), us(10_000)), Step::Sleep(MEDIUM_SLEEP));
        assert_eq!(next_step(POLLED, false, us(25_600), us(25_600)), Step::Sleep(us(100)));
    }

    #[test]
    fn streams_are_queried_after_the_watch_time_without_a_report() {
        assert_eq!(next_step(POLLED, false, us(50_000), us(50_000)), Step::Query);
        assert_eq!(next_step(Completion::HostFunction, false, us(1), us(50_000)), Step::Query);
        // New entries do not delay it.
        assert_eq!(next_step(POLLED, false, us(1), us(50_000)), Step::Query);
        assert_eq!(next_step(POLLED, false, us(49_990), us(49_990)), Step::Sleep(us(10)));
    }

    #[test]
    fn idle_thread_parks_after_its_spin() {
        assert_eq!(next_step(POLLED, true, us(10), us(90_000)), Step::Spin);
        assert_eq!(next_step(POLLED, true, us(200), us(200)), Step::Park);
        assert_eq!(next_step(Completion::HostFunction, true, us(0), us(0)), Step::Park);
    }

    #[test]
    fn signaled_thread_sleeps_until_the_next_query() {
        assert_eq!(
            next_step(Completion::HostFunction, false, us(0), us(20_000)),
            Step::Sleep(us(30_000))
        );
    }

    #[test]
    fn returns_when_the_stream_has_passed_the_number() {
        let passed = Passed::default();
        let thread = passed.clone();
        let device = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1));
            thread.raise(4);
        });
        assert_eq!(block_on_report(|| Ok(passed.load() >= 3), || Ok(())), Ok(()));
        device.join().unwrap();
    }

    #[test]
    fn error_of_the_query_ends_the_wait() {
        let passed = || Ok(false);
        assert_eq!(block_on_report(passed, || Err(Error::AlreadyEnded)), Err(Error::AlreadyEnded));
    }
}
