//! `RecordedMemory`: an owner of an allocation that is not a handle of a user.

use std::{ops::Deref, sync::Arc};

use super::allocation::Allocation;

/// A recording's share of an allocation. The allocation counts these owners, so that a recording can tell whether any
/// handle is left.
pub(crate) struct RecordedMemory(Arc<Allocation>);

impl RecordedMemory {
    pub(crate) fn new(memory: Arc<Allocation>) -> Self {
        memory.owners.add();
        Self(memory)
    }

    /// Whether recordings are the only owners. While they are, no handle can be created. May return false if another
    /// recording is made or dropped meanwhile.
    pub(crate) fn has_no_handle(&self) -> bool {
        let before = self.0.owners.counts();
        let owners = Arc::strong_count(&self.0) as u64;
        let is_unchanged = self.0.owners.counts() == before;
        is_unchanged && owners == before.0 - before.1
    }

    pub(crate) fn share(&self) -> Arc<Allocation> {
        self.0.clone()
    }
}

impl Deref for RecordedMemory {
    type Target = Allocation;

    fn deref(&self) -> &Allocation {
        &self.0
    }
}

impl Clone for RecordedMemory {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl Drop for RecordedMemory {
    fn drop(&mut self) {
        // Before the `Arc` is dropped: the counts then never show an owner too many.
        self.0.owners.remove();
    }
}
