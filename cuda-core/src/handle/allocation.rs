//! Device memory with its access histories.

use std::{ops::Range, sync::Arc};

use super::device::Device;
use crate::{
    order::{Retain, accesses::Accesses},
    protocol::{Access, AllocId, Region, Ticket},
    runtime::Freed,
};

/// Untyped device memory, freed in stream order after its last use.
pub struct Allocation {
    device: Device,
    id: AllocId,
    bytes: u64,
    pub(super) accesses: Accesses,
}

impl Allocation {
    pub(super) fn new(device: Device, id: AllocId, bytes: u64, allocated: Ticket) -> Arc<Self> {
        Arc::new(Self { device, id, bytes, accesses: Accesses::written(allocated) })
    }

    /// Its size in bytes, as requested.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device it is on.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.device
    }

    #[inline]
    pub(crate) fn region(&self, offset: u64) -> Region {
        Region { alloc: self.id, offset }
    }

    /// Whether everything that used it is known to be complete.
    pub(super) fn is_settled(&self) -> bool {
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
    pub(super) allocation: &'a Allocation,
    pub(super) range: Range<u64>,
    pub(super) access: Access,
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
