//! Counts with a limit, of things that count until they are dropped.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// Counts until it is dropped.
pub(super) struct Counted(Arc<AtomicU32>);

impl Counted {
    pub(super) fn new(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }

    /// Returns `None` if the count has reached the limit.
    pub(super) fn below(count: &Arc<AtomicU32>, limit: u32) -> Option<Self> {
        let add = |count: u32| (count < limit).then(|| count + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Self(count.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
