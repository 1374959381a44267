//! The time at which streams run their work: immediately, or at random times, which detects missing order.

use std::time::{Duration, Instant};

use crate::random::Random;

/// The time at which a CPU device runs submissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Timing {
    /// As soon as possible.
    #[default]
    AsFastAsPossible,
    /// At random times, for tests. Unordered submissions run in all orders, which detects missing order between streams.
    ///
    /// - Every stream delays its submissions: one in sixteen by `max_delay`, and four in sixteen by up to an eighth of that.
    ///   A delay stalls all later submissions of the stream.
    /// - Memory exists from when the stream runs the allocation, not from its submission. An access that is not ordered after
    ///   the allocation faults.
    /// - Half of the notices are delivered late, by up to an eighth of `max_delay`. The notices of one stream stay in order.
    ///
    /// A delayed stream occupies no thread; one timer restarts all streams. The delays of a stream depend only on `seed` and
    /// the stream's number. The timing of the machine adds variation from run to run.
    Adversarial {
        /// The seed of the random delays.
        seed: u64,
        /// The maximum delay. Values above a year count as a year.
        max_delay: Duration,
    },
}

/// The maximum delay, which the clock can represent.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The delays of one stream.
pub(crate) struct Pace {
    random: Random,
    max: Duration,
    /// Whether the next submission was already delayed.
    held: bool,
    /// The due time of the latest notice.
    last_notice: Instant,
}

impl Pace {
    /// Creates the delays of a stream. Returns `None` if `timing` has no delays.
    pub(crate) fn new(timing: Timing, stream: u64) -> Option<Self> {
        let Timing::Adversarial { seed, max_delay: max } = timing else { return None };
        let random = Random::new(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        Some(Self { random, max: max.min(LONGEST), held: false, last_notice: Instant::now() })
    }

    /// Returns the delay of the next submission. Called before the delay and after it.
    pub(crate) fn hold(&mut self) -> Option<Duration> {
        if std::mem::take(&mut self.held) {
            return None;
        }
        let hold = match self.random.next() % 16 {
            0 => self.max,
            1..=4 => self.short(),
            _ => return None,
        };
        self.held = true;
        Some(hold)
    }

    /// Returns the due time of a notice, which is never before that of an earlier notice.
    pub(crate) fn notice_due(&mut self) -> Instant {
        let now = Instant::now();
        let due = if self.random.next().is_multiple_of(2) { now + self.short() } else { now };
        self.last_notice = self.last_notice.max(due);
        self.last_notice
    }

    fn short(&mut self) -> Duration {
        let nanos = u64::try_from(self.max.as_nanos() / 8).unwrap_or(u64::MAX);
        Duration::from_nanos(self.random.next() % nanos.saturating_add(1).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(seed: u64, stream: u64) -> Vec<Option<Duration>> {
        let max_delay = Duration::from_micros(800);
        let mut pace = Pace::new(Timing::Adversarial { seed, max_delay }, stream).unwrap();
        let command = |_| pace.hold().inspect(|_| assert_eq!(pace.hold(), None));
        (0..1000).map(command).collect()
    }

    #[test]
    fn delays_come_from_the_seed_and_the_stream() {
        assert_eq!(delays(1, 1), delays(1, 1));
        assert_ne!(delays(1, 1), delays(1, 2));
        assert_ne!(delays(1, 1), delays(2, 1));
        let long = |delay: &&Option<Duration>| delay.is_some_and(|d| d.as_micros() == 800);
        let short = |delay: &&Option<Duration>| delay.is_some_and(|d| d.as_micros() <= 100);
        let (stalls, shorts) =
            (delays(3, 1).iter().filter(long).count(), delays(3, 1).iter().filter(short).count());
        assert!((30..100).contains(&stalls) && (180..320).contains(&shorts), "{stalls} {shorts}");
    }

    #[test]
    fn excessive_max_delay_is_clamped() {
        let timing = Timing::Adversarial { seed: 1, max_delay: Duration::MAX };
        let mut pace = Pace::new(timing, 1).unwrap();
        for _ in 0..100 {
            assert!(pace.hold().is_none_or(|hold| Instant::now().checked_add(hold).is_some()));
            assert!(pace.notice_due() >= pace.last_notice);
        }
    }

    #[test]
    fn notices_of_a_stream_stay_in_order() {
        let timing = Timing::Adversarial { seed: 5, max_delay: Duration::from_millis(100) };
        let mut pace = Pace::new(timing, 1).unwrap();
        let due: Vec<_> = (0..100).map(|_| pace.notice_due()).collect();
        assert!(due.is_sorted());
        assert!(Pace::new(Timing::AsFastAsPossible, 1).is_none());
    }
}
