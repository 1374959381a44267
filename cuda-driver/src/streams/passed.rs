//! `Passed`: the number of the last submission that a stream is known to have run.

use std::sync::Arc;

use cuda_core::internals::sync::atomic::{AtomicU64, Ordering};

/// The number up to which a stream is known to be complete. It only grows. The completion thread or a host function
/// raises it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passed(Arc<AtomicU64>);

impl Passed {
    /// The largest number that was stored. The effects of the submissions up to it are visible to the calling thread.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Raises the number to `number`, unless it is larger already.
    pub(crate) fn raise(&self, number: u64) {
        self.0.fetch_max(number, Ordering::AcqRel);
    }
}
