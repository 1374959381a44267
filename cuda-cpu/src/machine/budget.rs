//! Limits on the host memory that kernels take for registers, local memory and shared memory.
//!
//! The sizes come from unchecked numbers in the PTX. Without limits, a short text could exhaust the host's memory. A
//! kernel beyond [`MAX_LOCAL`] or [`MAX_REGISTERS`] is not loaded, a call beyond them is a stack overflow, and the
//! blocks of a launch share a [`Budget`].

use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum local memory of a thread, in bytes: 512 KiB.
pub(crate) const MAX_LOCAL: u32 = 512 << 10;

/// Maximum size of a warp's register file, with the frames of all its calls, in bytes: 64 MiB.
pub(crate) const MAX_REGISTERS: u32 = 64 << 20;

/// Minimum budget of a launch, in bytes. If a quarter of the device memory is larger, that is the budget.
const MIN_BUDGET: u64 = 1 << 30;

/// The bytes that the blocks of one launch may still take.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicU64,
    pub(crate) limit: u64,
}

impl Budget {
    /// Creates the budget of a launch on a device with `device_bytes` of memory.
    pub(crate) fn new(device_bytes: u64) -> Self {
        let limit = MIN_BUDGET.max(device_bytes / 4);
        Self { left: AtomicU64::new(limit), limit }
    }

    /// Takes `bytes` from the budget. Returns false if fewer are left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Returns `bytes` to the budget.
    pub(crate) fn give(&self, bytes: u64) {
        // All workers share the counter, and blocks that end usually have nothing to return.
        if bytes > 0 {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_never_exceeded() {
        let budget = Budget::new(8 << 30);
        assert_eq!((budget.limit, Budget::new(0).limit), (2 << 30, MIN_BUDGET));
        assert!(budget.take(2 << 30));
        assert!(!budget.take(1) && budget.take(0));
        budget.give(5);
        assert!(!budget.take(6) && budget.take(5));
    }
}
