//! The memory quota of a lease: one counter for the session and the stateless submits.

use std::sync::Arc;

use cuda_core::{Error, Result, protocol::Status};
use parking_lot::Mutex;

/// Counts memory of a lease. The limit is 0 until [`set_limit`](Self::set_limit).
#[derive(Debug, Default)]
pub(super) struct Quota {
    /// The end of messages: the kind of the memory and an advice. Empty for device memory.
    kind: &'static str,
    counts: Mutex<Counts>,
}

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
    /// Creates the quota of other memory than device memory.
    pub(super) fn new(kind: &'static str, limit: u64) -> Self {
        Self { kind, counts: Mutex::new(Counts { limit, used: 0 }) }
    }

    /// Sets the limit in bytes.
    pub(super) fn set_limit(&self, bytes: u64) {
        self.counts.lock().limit = bytes;
    }

    /// Returns the limit and the bytes in use.
    pub(super) fn limit_and_used(&self) -> (u64, u64) {
        let counts = self.counts.lock();
        (counts.limit, counts.used)
    }

    /// Takes `bytes` bytes until the returned value is dropped.
    ///
    /// # Errors
    /// Fewer bytes are free.
    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge> {
        let mut counts = self.counts.lock();
        if bytes > counts.limit.saturating_sub(counts.used) {
            drop(counts);
            return Err(self.shortage(bytes));
        }
        counts.used += bytes;
        Ok(Charge { quota: self.clone(), bytes })
    }

    /// The error for `bytes` bytes that are not free.
    pub(super) fn shortage(&self, bytes: u64) -> Error {
        let ((limit, used), kind) = (self.limit_and_used(), self.kind);
        let free = limit.saturating_sub(used);
        let detail =
            format!("{bytes} bytes requested; the lease has {free} free of {limit} bytes{kind}");
        Error::Remote {
            address: "the lease".into(),
            status: Status::of_shortage(bytes, limit),
            detail,
        }
    }
}

impl Charge {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut counts = self.quota.counts.lock();
        counts.used = counts.used.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_beyond_the_limit_are_refused_and_dropped_ones_come_back() {
        let quota = Arc::new(Quota::default());
        let is_refused = |bytes, words: &str| {
            let refused = quota.charge(bytes).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        };
        is_refused(1, "1 bytes requested; the lease has 0 free of 0 bytes");
        quota.set_limit(10);
        let (first, second) = (quota.charge(4).unwrap(), quota.charge(6).unwrap());
        is_refused(1, "0 free of 10");
        drop(second);
        assert_eq!((quota.limit_and_used(), first.bytes()), ((10, 4), 4));
        drop(first);
        is_refused(11, "10 free of 10");
    }
}
