//! The memory quota of a lease: one counter for the session and the stateless submits.

use std::sync::Arc;

use cuda_core::{Backend, Error, protocol::Status};
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

    /// Takes `bytes` bytes until the returned value is dropped.
    ///
    /// # Errors
    /// Fewer bytes are free.
    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, Shortage> {
        let mut counts = self.0.lock();
        let (limit, free) = (counts.limit, counts.limit.saturating_sub(counts.used));
        if bytes > free {
            return Err(Shortage { bytes, free, limit });
        }
        counts.used += bytes;
        Ok(Charge { quota: self.clone(), bytes })
    }
}

impl Charge {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut counts = self.quota.0.lock();
        counts.used = counts.used.saturating_sub(self.bytes);
    }
}

/// A charge that a [`Quota`] has refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) bytes: u64,
    pub(super) free: u64,
    pub(super) limit: u64,
}

impl Shortage {
    pub(super) fn status(&self) -> Status {
        Status::of_shortage(self.bytes, self.limit)
    }

    /// The error of a command of a session.
    pub(super) fn error(&self, backend: &dyn Backend, detail: String) -> Error {
        let address = backend.info().address.clone();
        Error::Remote { address, status: self.status(), detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_beyond_the_limit_are_refused_and_dropped_ones_come_back() {
        let quota = Arc::new(Quota::default());
        let refused = |bytes, free, limit| Shortage { bytes, free, limit };
        assert_eq!(quota.charge(1).unwrap_err(), refused(1, 0, 0));
        quota.set_limit(10);
        let (first, second) = (quota.charge(4).unwrap(), quota.charge(6).unwrap());
        assert_eq!(quota.charge(1).unwrap_err(), refused(1, 0, 10));
        drop(second);
        assert_eq!((quota.limit_and_used(), first.bytes()), ((10, 4), 4));
        drop(first);
        assert_eq!(quota.charge(11).unwrap_err(), refused(11, 10, 10));
    }
}
