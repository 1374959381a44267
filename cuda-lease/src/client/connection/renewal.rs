//! The times at which a lease is renewed.

use std::time::Duration;

/// Plans the renewals of one lease: after 70 to 75 percent of its duration, with jitter; after a failure again, with
/// increasing pauses. It has no clock and no network.
#[derive(Debug)]
pub(super) struct Renewal {
    /// The part of the jitter that this lease uses, from 0 to 1. It spreads the renewals of many leases.
    jitter: f64,
    failures: u32,
}

/// The pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Renewal {
    /// `jitter` is a random number from 0 to 1.
    pub(in crate::client) fn new(jitter: f64) -> Self {
        Self { jitter: jitter.clamp(0.0, 1.0), failures: 0 }
    }

    /// The time until the next renewal of a lease that was granted or renewed just now, and expires in `expires_in`.
    pub(super) fn after_success(&mut self, expires_in: Duration) -> Duration {
        self.failures = 0;
        // Between 70 and 75 percent.
        expires_in.mul_f64(0.75 - 0.05 * self.jitter)
    }

    /// The time until the next attempt, after one that failed. `left` is the time until the lease expires.
    pub(super) fn after_failure(&mut self, left: Duration) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures += 1;
        // Several attempts fit into the rest. The pauses do not shrink to zero before the end.
        pause.mul_f64(0.75 + 0.5 * self.jitter).min(left / 4).max(FIRST_PAUSE / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lease_is_renewed_at_three_quarters_of_its_time() {
        for jitter in [0.0, 0.5, 1.0] {
            let at = Renewal::new(jitter).after_success(100 * SECOND);
            assert!((70 * SECOND..=75 * SECOND).contains(&at), "{at:?}");
        }
    }

    #[test]
    fn attempts_after_failures_come_at_growing_pauses_and_before_the_end() {
        let mut renewal = Renewal::new(0.5);
        let pauses: Vec<_> = (0..5).map(|_| renewal.after_failure(1000 * SECOND)).collect();
        assert!(pauses.windows(2).all(|two| two[0] < two[1]), "{pauses:?}");
        assert!(renewal.after_failure(SECOND) <= SECOND / 4);
        assert!(renewal.after_failure(Duration::ZERO) >= FIRST_PAUSE / 2);
        assert!((0..40).all(|_| renewal.after_failure(1000 * SECOND) <= LONGEST_PAUSE * 2));
    }
}
