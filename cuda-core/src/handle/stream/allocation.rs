//! Device memory with its access histories.

use std::{
    ops::Range,
    sync::{Arc, Weak},
};

use crate::{
    handle::device::Device,
    order::{Retain, accesses::Accesses},
    protocol::{Access, AllocId, Region, Result, Ticket},
    runtime::Freed,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// Untyped device memory, freed in stream order after its last use.
pub struct Allocation {
    device: Device,
    id: AllocId,
    bytes: u64,
    pub(super) accesses: Accesses,
    /// Whether a recording uses it: see `turns`.
    recorded: AtomicBool,
    pub(super) turn: Mutex<()>,
    this: Weak<Self>,
}

impl Allocation {
    pub(super) fn new(device: Device, id: AllocId, bytes: u64, allocated: Ticket) -> Arc<Self> {
        let accesses = Accesses::written(allocated);
        let (recorded, turn) = (AtomicBool::new(false), Mutex::new(()));
        Arc::new_cyclic(|this| Self {
            device,
            id,
            bytes,
            accesses,
            recorded,
            turn,
            this: this.clone(),
        })
    }

    /// Returns the size in bytes, as requested.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the device of this allocation.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.device
    }

    #[inline]
    pub(crate) fn id(&self) -> AllocId {
        self.id
    }

    /// Another owner of it. `None` if it was taken out of its `Arc`, and then no handle uses it.
    pub(crate) fn shared(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// Adds boundaries, so that the parts on both sides are ordered separately. The caller has these parts to itself.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) at the limit of pieces.
    pub(crate) fn split(&self, at: impl IntoIterator<Item = u64>) -> Result<()> {
        self.accesses.split(at)
    }

    /// Marks it as used by a recording. The mark is never removed. Called while the recorded operation holds the
    /// handle.
    pub(super) fn mark_recorded(&self) {
        self.recorded.store(true, Ordering::Relaxed);
    }

    /// Whether a recording uses it. Relaxed: a conflicting use needs an exclusive borrow, which orders the mark
    /// before a later read of it.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn region(&self, offset: u64) -> Region {
        Region { alloc: self.id, offset }
    }

    /// Whether everything that used it is known to be complete.
    pub(crate) fn is_settled(&self) -> bool {
        let streams = &self.device.core().streams;
        self.accesses.last_uses().iter().all(|ticket| streams.is_complete(*ticket))
    }
}

impl Retain for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        let last_uses = self.accesses.last_uses();
        let freed = Freed { id: self.id, bytes: self.bytes.max(1), last_uses };
        self.device.core().retire_allocation(freed);
    }
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocation").field("id", &self.id).field("bytes", &self.bytes).finish()
    }
}

/// The use of some bytes of an allocation by a submission.
#[derive(Debug, Clone)]
pub(crate) struct Operand<'a> {
    pub(crate) allocation: &'a Allocation,
    pub(crate) range: Range<u64>,
    pub(crate) access: Access,
}

impl<'a> Operand<'a> {
    #[inline]
    pub(crate) fn new(allocation: &'a Allocation, range: Range<u64>, access: Access) -> Self {
        Self { allocation, range, access }
    }

    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.range.start == 0 && self.range.end >= self.allocation.bytes
    }
}
