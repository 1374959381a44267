//! The wait budget of a thread that waits for streams: the times for which it spins and sleeps, and the time after
//! which it queries the streams. Uses no CUDA and no clock.

use std::time::Duration;

/// Streams with outstanding reports are queried after this time without a report. After a fault the device takes about
/// three times as long to return an error.
pub(super) const WATCH: Duration = Duration::from_millis(50);

/// The shortest sleep; waking up costs about as much.
const SHORTEST_SLEEP: Duration = Duration::from_micros(5);

/// The longest sleep in a wait of up to 15 ms. Tasks whose work ends during one sleep wake at once, and their polls
/// delay the executor's other tasks.
const MEDIUM_SLEEP: Duration = Duration::from_micros(60);

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

/// The way in which a waiting thread learns that a stream has passed a checkpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wakeup {
    /// By polling: it spins for this long after a report or a new entry, then sleeps between checks.
    Polled(Duration),
    /// By a signal.
    Signaled,
}

/// Returns the next step. `idle` means that no entry is watched. `since_active` is the time since a report was
/// delivered or an entry came. `since_check` is the time since a report was delivered, the streams were queried, or the
/// first entry came.
pub(super) fn next_step(
    wakeup: Wakeup,
    idle: bool,
    since_active: Duration,
    since_check: Duration,
) -> Step {
    let spin = match wakeup {
        Wakeup::Polled(spin) => spin,
        Wakeup::Signaled => Duration::ZERO,
    };
    match (idle, since_active < spin) {
        (_, true) if since_check < WATCH || idle => Step::Spin,
        (true, _) => Step::Park,
        (false, _) if since_check >= WATCH => Step::Query,
        _ => {
            let rest = WATCH - since_check;
            match wakeup {
                Wakeup::Polled(_) => Step::Sleep(sleep_after(since_active).min(rest)),
                Wakeup::Signaled => Step::Sleep(rest),
            }
        }
    }
}

/// Returns the next sleep of a wait that has lasted for `wait`. After a long wait, a short delay matters less.
fn sleep_after(wait: Duration) -> Duration {
    let (short, long) = (wait / 64, wait / 256);
    short.clamp(SHORTEST_SLEEP, MEDIUM_SLEEP).max(long)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SPIN: Wakeup = Wakeup::Polled(Duration::from_micros(200));

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn polling_thread_spins_first_then_sleeps_a_part_of_the_wait() {
        assert_eq!(next_step(SPIN, false, us(199), us(199)), Step::Spin);
        let short = Wakeup::Polled(us(20));
        assert_eq!(next_step(short, false, us(100), us(100)), Step::Sleep(SHORTEST_SLEEP));
        assert_eq!(next_step(SPIN, false, us(3200), us(3200)), Step::Sleep(us(50)));
        assert_eq!(next_step(SPIN, false, us(10_000), us(10_000)), Step::Sleep(MEDIUM_SLEEP));
        assert_eq!(next_step(SPIN, false, us(25_600), us(25_600)), Step::Sleep(us(100)));
    }

    #[test]
    fn streams_are_queried_after_the_watch_time_without_a_report() {
        assert_eq!(next_step(SPIN, false, us(50_000), us(50_000)), Step::Query);
        assert_eq!(next_step(Wakeup::Signaled, false, us(1), us(50_000)), Step::Query);
        // New entries do not delay it.
        assert_eq!(next_step(SPIN, false, us(1), us(50_000)), Step::Query);
        assert_eq!(next_step(SPIN, false, us(49_990), us(49_990)), Step::Sleep(us(10)));
    }

    #[test]
    fn idle_thread_parks_after_its_spin() {
        assert_eq!(next_step(SPIN, true, us(10), us(90_000)), Step::Spin);
        assert_eq!(next_step(SPIN, true, us(200), us(200)), Step::Park);
        assert_eq!(next_step(Wakeup::Signaled, true, us(0), us(0)), Step::Park);
    }

    #[test]
    fn signaled_thread_sleeps_until_the_next_query() {
        assert_eq!(next_step(Wakeup::Signaled, false, us(0), us(20_000)), Step::Sleep(us(30_000)));
    }
}
