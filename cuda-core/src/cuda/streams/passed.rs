//! `Passed`: the number of the last submission that a stream is known to have run.

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows. The completion thread stores it, or a host function that the stream runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passed(Arc<AtomicU64>);

impl Passed {
    /// The number that was stored last. What the stream did before that is visible to this thread.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Stores `number`, unless a larger one is stored.
    pub(crate) fn raise(&self, number: u64) {
        self.0.fetch_max(number, Ordering::AcqRel);
    }
}
