//! The client's own count of device memory: charged when an allocation is sent, refunded when its free is sent. The
//! client detects out of memory without a round trip.

use crate::{
    protocol::{Error, Result},
    sync::atomic::{AtomicU64, Ordering},
};

pub(crate) struct MemoryCharge {
    quota: u64,
    used: AtomicU64,
}

impl MemoryCharge {
    pub(crate) fn new(quota: u64) -> Self {
        Self { quota, used: AtomicU64::new(0) }
    }

    /// Charges an allocation.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if it exceeds what is left of the quota.
    pub(crate) fn charge(&self, requested: u64) -> Result<()> {
        // A compare-and-swap loop: adding first and undoing it would refuse other allocations that fit.
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let sum = used.checked_add(requested).filter(|sum| *sum <= self.quota);
            let Some(sum) = sum else {
                let free = self.quota - used;
                return Err(Error::OutOfMemory { requested, free, total: self.quota });
            };
            match self.used.compare_exchange(used, sum, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => used = now,
            }
        }
    }

    /// Gives back the charge of an allocation.
    pub(crate) fn refund(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn charge_beyond_the_quota_is_refused_and_not_counted() {
        let charge = MemoryCharge::new(100);
        charge.charge(60).unwrap();
        let refused = Error::OutOfMemory { requested: 41, free: 40, total: 100 };
        assert_eq!(charge.charge(41), Err(refused));
        assert!(charge.charge(u64::MAX).is_err());
        charge.charge(40).unwrap();
        charge.refund(60);
        charge.charge(60).unwrap();
        assert_eq!(charge.used.load(Ordering::Relaxed), 100);
    }
}
