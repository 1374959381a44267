//! How much host memory kernels may take for registers, local and shared memory.
//!
//! All of it comes from numbers in the PTX, which nobody has checked: without bounds a small text could end the
//! process. A kernel beyond [`MAX_LOCAL`] or [`MAX_REGISTERS`] is not loaded, a call beyond them is a stack
//! overflow, and the blocks of a launch share a [`Budget`].

use std::sync::atomic::{AtomicU64, Ordering};

/// Local memory of a thread, in bytes: 512 KiB.
pub(crate) const MAX_LOCAL: u32 = 512 << 10;

/// The register file of a warp, with the frames of all its calls, in bytes: 64 MiB.
pub(crate) const MAX_REGISTERS: u32 = 64 << 20;

/// What every launch may take; on devices with much memory it is a quarter of that.
const LEAST: u64 = 1 << 30;

/// The bytes that blocks of one launch may still take.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicU64,
    pub(crate) limit: u64,
}

impl Budget {
    /// For a launch on a device with this much memory.
    pub(crate) fn new(device_bytes: u64) -> Self {
        let limit = LEAST.max(device_bytes / 4);
        Self { left: AtomicU64::new(limit), limit }
    }

    /// Takes `bytes`, if they are left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Gives `bytes` back.
    pub(crate) fn give(&self, bytes: u64) {
        // Blocks that end have mostly nothing to give, and all workers share this.
        if bytes > 0 {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_out_no_more_than_there_is() {
        let budget = Budget::new(8 << 30);
        assert_eq!((budget.limit, Budget::new(0).limit), (2 << 30, LEAST));
        assert!(budget.take(2 << 30));
        assert!(!budget.take(1) && budget.take(0));
        budget.give(5);
        assert!(!budget.take(6) && budget.take(5));
    }
}
