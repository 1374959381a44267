//! Device memory with its access histories.

use std::{ops::Range, sync::Arc};

use super::{Device, Stream};
use crate::{
    order::{Retain, history::Pieces},
    protocol::{Access, AllocId, Control, Region, Result, Ticket},
    runtime::Freed,
    sync::Mutex,
};

/// Untyped device memory, freed in stream order after its last use.
pub struct Allocation {
    device: Device,
    id: AllocId,
    bytes: u64,
    pub(super) pieces: Mutex<Pieces>,
}

impl Allocation {
    /// Allocates in the order of a stream; usable on every stream of the device at once. The contents are unspecified.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or an error of the device.
    pub fn new(stream: &Stream, bytes: u64) -> Result<Arc<Self>> {
        let device = stream.device().clone();
        let core = device.core();
        core.reclaim_memory();
        let (id, charged) = (AllocId(core.next_id()), bytes.max(1));
        core.charge.charge(charged)?;
        let allocate = |at: Ticket| {
            // SAFETY: gives nothing up.
            unsafe { core.backend.control(Control::Allocate { id, bytes: charged, at }) }
        };
        // Made only once the backend took the allocation: dropping it frees.
        let ticket =
            stream.submit_control(allocate).inspect_err(|_| core.charge.credit(charged))?;
        let pieces = Mutex::new(Pieces::written(ticket));
        Ok(Arc::new(Self { device, id, bytes, pieces }))
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
        self.pieces.lock().last_uses().iter().all(|ticket| streams.is_complete(*ticket))
    }
}

impl Retain for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        let last_uses = self.pieces.get_mut().last_uses();
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
