//! The client's own count of device memory: charged when an allocation is sent, refunded when its free is sent. The
//! client detects out of memory without a round trip.
//!
//! A device has one count, against its quota, and every pool beside the default one has a second one, against its limit.

use std::sync::atomic::AtomicU64 as Counter;

use crate::{
    protocol::{Error, Result},
    sync::atomic::{AtomicU64, Ordering},
};

pub(crate) struct MemoryCharge {
    quota: u64,
    used: AtomicU64,
    /// The part of `used` that other counts count too: the memory of pools, in the count of a device.
    elsewhere: Counter,
    /// The peak of `used` without `elsewhere`.
    peak: Counter,
}

impl MemoryCharge {
    pub(crate) fn new(quota: u64) -> Self {
        let (used, elsewhere, peak) = (AtomicU64::new(0), Counter::new(0), Counter::new(0));
        Self { quota, used, elsewhere, peak }
    }

    /// Charges an allocation.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if it exceeds what is left of the quota.
    #[inline]
    pub(crate) fn charge(&self, requested: u64) -> Result<()> {
        // A compare-and-swap loop: adding first and undoing it would refuse other allocations that fit.
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let sum = used.checked_add(requested).filter(|sum| *sum <= self.quota);
            let Some(sum) = sum else {
                let free = self.quota - used;
                return Err(Error::OutOfMemory { requested, free, total: self.quota, pool: None });
            };
            match self.used.compare_exchange(used, sum, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => used = now,
            }
        }
    }

    /// Raises the peak to the bytes in use now. Called when a charged allocation was made: one that is refused later is no
    /// use of memory.
    #[inline]
    pub(crate) fn raise_peak(&self) {
        let own = self.own_now();
        if own > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(own, Ordering::Relaxed);
        }
    }

    /// As [`charge`](Self::charge), for an allocation that another count has too.
    pub(crate) fn charge_elsewhere(&self, requested: u64) -> Result<()> {
        self.elsewhere.fetch_add(requested, Ordering::Relaxed);
        let added = self.charge(requested);
        if added.is_err() {
            self.elsewhere.fetch_sub(requested, Ordering::Relaxed);
        }
        added
    }

    /// Gives back the charge of an allocation.
    pub(crate) fn refund(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Gives back a charge of [`charge_elsewhere`](Self::charge_elsewhere).
    pub(crate) fn refund_elsewhere(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.elsewhere.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the limit of this count.
    pub(crate) fn quota(&self) -> u64 {
        self.quota
    }

    /// Returns the bytes in use now, and at the peak, without those that another count has.
    pub(crate) fn own(&self) -> (u64, u64) {
        let used = self.own_now();
        (used, self.peak.load(Ordering::Relaxed).max(used))
    }

    /// Sets the peak to the bytes in use now.
    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.own_now(), Ordering::Relaxed);
    }

    fn own_now(&self) -> u64 {
        // An allocation of a pool counts in `elsewhere` before and in `used` after. So if it comes now, this is not too large.
        let used = self.used.load(Ordering::Relaxed);
        used.saturating_sub(self.elsewhere.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn charge_beyond_the_quota_is_refused_and_not_counted() {
        let charge = MemoryCharge::new(100);
        charge.charge(60).unwrap();
        let refused = Error::OutOfMemory { requested: 41, free: 40, total: 100, pool: None };
        assert_eq!(charge.charge(41), Err(refused));
        assert!(charge.charge(u64::MAX).is_err());
        charge.charge(40).unwrap();
        charge.refund(60);
        charge.charge(60).unwrap();
        assert_eq!(charge.used.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn memory_of_pools_counts_against_the_quota_and_not_as_own() {
        let charge = MemoryCharge::new(100);
        charge.charge(10).unwrap();
        charge.charge_elsewhere(70).unwrap();
        assert!(charge.charge(21).is_err() && charge.charge_elsewhere(21).is_err());
        assert_eq!(charge.own(), (10, 10));
        charge.charge(20).unwrap();
        charge.raise_peak();
        charge.refund(25);
        charge.refund_elsewhere(70);
        assert_eq!(charge.own(), (5, 30));
        charge.reset_peak();
        assert_eq!(charge.own(), (5, 5));
    }
}
