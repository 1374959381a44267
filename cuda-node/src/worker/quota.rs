//! The memory quota of a lease: one counter for the session and the stateless submits.

use std::sync::Arc;

use cuda_core::{Error, Result, protocol::Status};
use parking_lot::Mutex;

/// Counts memory of a lease.
#[derive(Debug)]
pub(super) struct Quota {
    /// The end of messages: the kind of the memory and an advice. Empty for device memory.
    kind: &'static str,
    limit: u64,
    used: Mutex<u64>,
}

/// Bytes of a [`Quota`] in use. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct Charge {
    quota: Arc<Quota>,
    bytes: u64,
}

impl Quota {
    /// Creates a quota of `limit` bytes.
    pub(super) fn new(kind: &'static str, limit: u64) -> Self {
        Self { kind, limit, used: Mutex::new(0) }
    }

    /// Returns the limit and the bytes in use.
    pub(super) fn limit_and_used(&self) -> (u64, u64) {
        (self.limit, *self.used.lock())
    }

    /// Takes `bytes` bytes until the returned value is dropped.
    ///
    /// # Errors
    /// Fewer bytes are free.
    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge> {
        let mut used = self.used.lock();
        if bytes > self.limit - *used {
            drop(used);
            return Err(self.shortage(bytes));
        }
        *used += bytes;
        Ok(Charge { quota: self.clone(), bytes })
    }

    /// The error for `bytes` bytes that are not free.
    pub(super) fn shortage(&self, bytes: u64) -> Error {
        let (Self { kind, limit, .. }, free) = (self, self.limit - *self.used.lock());
        let detail =
            format!("{bytes} bytes requested; the lease has {free} free of {limit} bytes{kind}");
        Error::Remote {
            address: "the lease".into(),
            status: Status::of_shortage(bytes, *limit),
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
        *self.quota.used.lock() -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_beyond_the_limit_are_refused_and_dropped_ones_come_back() {
        let quota = Arc::new(Quota::new("; an advice", 10));
        let is_refused = |bytes, words: &str| {
            let refused = quota.charge(bytes).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        };
        let (first, second) = (quota.charge(4).unwrap(), quota.charge(6).unwrap());
        is_refused(1, "1 bytes requested; the lease has 0 free of 10 bytes; an advice");
        drop(second);
        assert_eq!((quota.limit_and_used(), first.bytes()), ((10, 4), 4));
        drop(first);
        is_refused(11, "10 free of 10");
    }
}
