//! How often something may happen.

use std::{num::NonZeroU32, time::Duration};

use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};

/// A rate per second.
pub(super) struct Rate {
    limit: u32,
    /// `None` if the limit is 0 or `u32::MAX`.
    limiter: Option<DefaultDirectRateLimiter>,
    burst: u32,
}

impl Rate {
    /// A rate whose largest burst is as many as one second allows. There is no limit for `u32::MAX`, and 0 allows nothing.
    pub(super) fn new(limit: u32) -> Self {
        Self::with_burst(limit, limit)
    }

    /// As [`new`](Self::new), with this largest burst.
    pub(super) fn with_burst(limit: u32, burst: u32) -> Self {
        let allowed = NonZeroU32::new(limit).filter(|limit| limit.get() != u32::MAX);
        let limiter = allowed
            .zip(NonZeroU32::new(burst))
            .map(|(limit, burst)| RateLimiter::direct(Quota::per_second(limit).allow_burst(burst)));
        Self { limit, limiter, burst }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn set(&mut self, limit: u32) {
        if self.limit != limit {
            *self = Self::new(limit);
        }
    }

    /// Counts one, or returns the time after which one is allowed.
    pub(super) fn admit(&self) -> Result<(), Duration> {
        self.admit_many(NonZeroU32::MIN)
    }

    /// Counts as many, at most the largest burst, or returns the time after which they are allowed.
    pub(super) fn admit_many(&self, count: NonZeroU32) -> Result<(), Duration> {
        match &self.limiter {
            Some(limiter) => {
                let now = DefaultClock::default().now();
                let count = NonZeroU32::new(self.burst).map_or(count, |burst| count.min(burst));
                let admitted = limiter.check_n(count).unwrap_or(Ok(()));
                admitted.map_err(|not_until| not_until.wait_time_from(now))
            }
            None if self.limit == 0 => Err(Duration::MAX),
            None => Ok(()),
        }
    }

    /// Waits until as many are allowed, at most the largest burst, and counts them.
    pub(super) async fn wait(&self, count: NonZeroU32) {
        while let Err(wait) = self.admit_many(count) {
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn counts_above_the_rate_wait() {
        let (rate, started) = (Rate::with_burst(100, 150), Instant::now());
        let count = |count| NonZeroU32::new(count).unwrap();
        // As many as the burst.
        rate.wait(count(1000)).await;
        rate.wait(count(100)).await;
        assert!(started.elapsed() >= Duration::from_millis(900));
    }
}
