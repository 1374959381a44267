//! The memory quota of a lease: one counter for the session and the stateless submits.

use std::sync::Arc;

use parking_lot::Mutex;

/// Counts the device memory of a lease. The limit is 0 until [`set_limit`](Self::set_limit).
#[derive(Debug, Default)]
pub(super) struct Quota(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    limit: u64,
    used: u64,
}

/// Bytes of a [`Quota`] in use. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct Charge {
    quota: Arc<Quota>,
    bytes: u64,
}

impl Quota {
    /// Sets the limit in bytes.
    pub(super) fn set_limit(&self, bytes: u64) {
        self.0.lock().limit = bytes;
    }

    /// Returns the limit and the bytes in use.
    pub(super) fn limit_and_used(&self) -> (u64, u64) {
        let counts = self.0.lock();
        (counts.limit, counts.used)
    }

    /// Takes `bytes` bytes.
    ///
    /// # Errors
    /// The limit and the bytes that are free, which are fewer.
    pub(super) fn take(&self, bytes: u64) -> Result<(), (u64, u64)> {
        let mut counts = self.0.lock();
        let free = counts.limit.saturating_sub(counts.used);
        if bytes > free {
            return Err((counts.limit, free));
        }
        counts.used += bytes;
        Ok(())
    }

    /// Gives back bytes that were taken.
    pub(super) fn give_back(&self, bytes: u64) {
        let mut counts = self.0.lock();
        counts.used = counts.used.saturating_sub(bytes);
    }

    /// Takes `bytes` bytes until the returned value is dropped.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, (u64, u64)> {
        self.take(bytes)?;
        Ok(Charge { quota: self.clone(), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.quota.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_beyond_the_limit_are_refused_and_dropped_ones_come_back() {
        let quota = Arc::new(Quota::default());
        assert_eq!(quota.take(1), Err((0, 0)));
        quota.set_limit(10);
        quota.take(4).unwrap();
        let charge = quota.charge(6).unwrap();
        assert_eq!(quota.charge(1).unwrap_err(), (10, 0));
        drop(charge);
        assert_eq!(quota.limit_and_used(), (10, 4));
        quota.give_back(4);
        assert_eq!(quota.take(11), Err((10, 10)));
    }
}
