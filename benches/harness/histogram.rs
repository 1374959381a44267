//! A histogram of durations of fixed size. Adding a value does not allocate.

use std::time::Duration;

/// The number of buckets for each power of two of nanoseconds. The relative error of quantiles is at most 1/16.
const STEPS: u64 = 16;

pub struct Histogram {
    counts: [u64; 64 * STEPS as usize],
    total: u64,
    max: Duration,
}

impl Histogram {
    pub const fn new() -> Self {
        Self { counts: [0; 64 * STEPS as usize], total: 0, max: Duration::ZERO }
    }

    /// Adds a duration that counts `weight` times.
    pub fn add(&mut self, duration: Duration, weight: u64) {
        self.counts[bucket(nanos(duration))] += weight;
        self.total += weight;
        self.max = self.max.max(duration);
    }

    /// The longest duration, exactly.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The upper end of the bucket that contains the quantile `share`.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(end(bucket as u64)).min(self.max);
            }
        }
        self.max
    }
}

pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Values below `STEPS` have a bucket each. Above, each power of two has `STEPS` buckets.
fn bucket(nanos: u64) -> usize {
    if nanos < STEPS {
        return nanos as usize;
    }
    let power = u64::from(nanos.ilog2() - STEPS.ilog2());
    (power * STEPS + (nanos >> power)) as usize
}

/// The first value after the bucket.
fn end(bucket: u64) -> u64 {
    let power = (bucket / STEPS).saturating_sub(1);
    (bucket - power * STEPS + 1) << power
}
