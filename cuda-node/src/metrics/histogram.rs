//! A histogram of durations.

use std::time::Duration;

use cuda_lease::wire::{Field, Reader, WireError, Writer};

/// The number of bounded buckets. The bound of bucket `i` is 2^i microseconds, so the last one is 33.6 seconds.
const BOUNDED: usize = 26;

/// A histogram of durations with buckets from 1 microsecond to 33.6 seconds, each twice as wide as the one before, and
/// one bucket for longer durations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BOUNDED + 1],
    /// The sum of all samples in nanoseconds.
    sum: u64,
}

/// The nanoseconds of a time, and its bucket.
#[inline]
fn placed(time: Duration) -> (u64, usize) {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let micros = nanos.div_ceil(1000);
    // The smallest power of two that is not below the time.
    let bucket = u64::BITS - micros.saturating_sub(1).leading_zeros();
    (nanos, (bucket as usize).min(BOUNDED))
}

impl Histogram {
    /// Adds a sample.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        let (nanos, bucket) = placed(time);
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(nanos);
    }

    /// Returns whether all samples may be at most this time.
    pub fn is_within(&self, longest: Duration) -> bool {
        let (nanos, bucket) = placed(longest);
        let is_empty = self.counts[bucket + 1..].iter().all(|count| *count == 0);
        is_empty && self.sum <= nanos.saturating_mul(self.count())
    }

    /// Adds the samples of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (own, more) in self.counts.iter_mut().zip(other.counts) {
            *own = own.saturating_add(more);
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Returns the number of samples.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the sum of all samples in seconds.
    pub fn sum(&self) -> f64 {
        self.sum as f64 / 1e9
    }

    /// Returns the buckets: the upper bound in seconds and the number of samples in the bucket. The last bound is
    /// infinity.
    pub fn buckets(&self) -> [(f64, u64); BOUNDED + 1] {
        std::array::from_fn(|index| {
            let bound = if index == BOUNDED { f64::INFINITY } else { (1u64 << index) as f64 / 1e6 };
            (bound, self.counts[index])
        })
    }

    /// Returns an upper bound in seconds of the quantile `q`, from 0 to 1. `None` without samples.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let wanted = ((self.count() as f64 * q).ceil() as u64).max(1);
        let mut seen = 0u64;
        self.buckets().into_iter().find_map(|(bound, count)| {
            seen = seen.saturating_add(count);
            (seen >= wanted).then_some(bound)
        })
    }
}

/// For reports of workers: a count has 32 bits.
impl Field<'_> for Histogram {
    fn put(&self, w: &mut Writer<'_>) {
        w.put_list(&self.counts, |w, count| {
            w.put(u32::try_from(*count).unwrap_or(u32::MAX));
        });
        w.put(self.sum);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let counts = r.get_list(4, |r| r.get::<u32>().map(u64::from))?;
        let value = counts.len() as u64;
        let counts = counts.try_into();
        let counts = counts.map_err(|_| WireError::Undefined { what: "a bucket count", value })?;
        Ok(Self { counts, sum: r.get()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket_of(nanos: u64) -> f64 {
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_nanos(nanos));
        let buckets = histogram.buckets();
        buckets.into_iter().find(|(_, count)| *count == 1).unwrap().0
    }

    #[test]
    fn bound_of_a_bucket_is_in_the_bucket() {
        assert_eq!((bucket_of(0), bucket_of(1000)), (1e-6, 1e-6));
        assert_eq!((bucket_of(1001), bucket_of(2000)), (2e-6, 2e-6));
        assert_eq!((bucket_of(2001), bucket_of(4000)), (4e-6, 4e-6));
        assert_eq!(bucket_of(33_554_432_000), 33.554_432);
        assert_eq!(
            (bucket_of(33_554_432_001), bucket_of(u64::MAX)),
            (f64::INFINITY, f64::INFINITY)
        );
    }

    #[test]
    fn samples_within_a_time_have_neither_a_later_bucket_nor_a_larger_sum() {
        let mut histogram = Histogram::default();
        assert!(histogram.is_within(Duration::ZERO));
        [3, 5].into_iter().for_each(|millis| histogram.record(Duration::from_millis(millis)));
        assert!(histogram.is_within(Duration::from_millis(5)));
        assert!(!histogram.is_within(Duration::from_millis(4)));
        histogram.sum = 11_000_000;
        assert!(!histogram.is_within(Duration::from_millis(5)));
        histogram.record(Duration::MAX);
        assert!(
            !histogram.is_within(Duration::from_secs(3600)) && histogram.is_within(Duration::MAX)
        );
    }

    #[test]
    fn merged_histogram_has_the_samples_of_both() {
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        one.record(Duration::from_micros(1));
        two.record(Duration::from_micros(3));
        two.record(Duration::from_secs(60));
        one.merge(&two);
        assert_eq!((one.count(), one.sum()), (3, 60.000_004));
        assert_eq!((one.quantile(0.0), one.quantile(0.5)), (Some(1e-6), Some(4e-6)));
        assert_eq!(
            (one.quantile(1.0), Histogram::default().quantile(0.5)),
            (Some(f64::INFINITY), None)
        );
    }

    #[test]
    fn histogram_with_another_number_of_buckets_is_refused() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_millis(5));
        let mut body = Vec::new();
        Writer::new(&mut body).put(histogram);
        assert_eq!(Reader::new(&body).get(), Ok(histogram));
        let mut body = Vec::new();
        Writer::new(&mut body).put(vec![1u32; 3]).put(0u64);
        assert!(Reader::new(&body).get::<Histogram>().is_err());
    }
}
