//! Reserved addresses to which physical memory is mapped piece by piece.
//!
//! # Rules
//! - A piece is mapped behind the pieces before it, and stays mapped until the whole mapping is freed. So an address
//!   that work was given stays valid.
//! - The driver's calls that unmap are not ordered by streams. [`FreedMapping`] makes them when an event behind the
//!   last use was reached, on the helper thread.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use cuda_core::protocol::{Error, Limit, Quantity, Result};
use parking_lot::Mutex;

use crate::{
    context::{Bound, Primary, Reclaimable},
    driver::{
        api::{Address, EventHandle, PhysicalHandle, PhysicalProps, PoolAccess},
        status::{self, Failed, Meaning, meaning_of_state},
    },
};

/// Reserved addresses, and the memory that is mapped there.
pub(crate) struct Mapping {
    primary: &'static Primary,
    pub(crate) address: Address,
    /// The reserved bytes, a multiple of `granularity`.
    reserved: u64,
    /// The unit of physical memory, in bytes.
    granularity: u64,
    mapped: Mutex<Mapped>,
    /// The bytes in use of the backend.
    used: Arc<AtomicU64>,
}

#[derive(Default)]
struct Mapped {
    pieces: Vec<Piece>,
    /// The bytes that the client may use.
    committed: u64,
}

/// Physical memory.
struct Piece {
    handle: PhysicalHandle,
    bytes: u64,
}

impl Mapping {
    /// Reserves addresses for `bytes` bytes.
    pub(crate) fn reserve(
        primary: &'static Primary,
        bytes: u64,
        used: Arc<AtomicU64>,
        _: &Bound,
    ) -> Result<Self> {
        let (api, props) = (primary.api, PhysicalProps::of(primary.device));
        let refused = |failed: Failed| match failed.code {
            status::OUT_OF_MEMORY => out_of_memory(primary, bytes),
            _ => primary.error(failed),
        };
        let mut granularity = 0;
        // SAFETY: writes one integer; reads one description.
        unsafe { api.physical_granularity(&mut granularity, &props, 0) }.map_err(refused)?;
        let granularity = (granularity as u64).max(1);
        let too_many = || out_of_memory(primary, bytes);
        let reserved = bytes.checked_next_multiple_of(granularity).ok_or_else(too_many)?;
        let size = usize::try_from(reserved).map_err(|_| too_many())?;
        let mut address = 0;
        // SAFETY: writes one address.
        unsafe { api.address_reserve(&mut address, size, 0, 0, 0) }.map_err(refused)?;
        Ok(Self { primary, address, reserved, granularity, mapped: Mutex::default(), used })
    }

    /// Maps memory, so that at least the first `bytes` bytes have some. May block.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or an error of the driver. Nothing has changed then.
    pub(crate) fn commit(&self, bytes: u64, bound: &Bound) -> Result<()> {
        let limit = Limit::AtMost(self.reserved);
        limit.check("the memory of a buffer that grows", Quantity::Bytes, bytes)?;
        let mut state = self.mapped.lock();
        let mapped: u64 = state.pieces.iter().map(|piece| piece.bytes).sum();
        let wanted = bytes.next_multiple_of(self.granularity).min(self.reserved);
        if wanted > mapped {
            let piece = self.add(mapped, wanted - mapped, bound)?;
            state.pieces.push(piece);
        }
        let more = bytes.saturating_sub(state.committed);
        state.committed += more;
        self.used.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the bytes that the client may use.
    pub(crate) fn committed(&self) -> u64 {
        self.mapped.lock().committed
    }

    /// Takes `size` bytes of memory, and maps them behind the first `mapped` bytes.
    fn add(&self, mapped: u64, size: u64, bound: &Bound) -> Result<Piece> {
        let handle = match self.create(size) {
            Err(Failed { code: status::OUT_OF_MEMORY, .. }) => {
                self.primary.trim_pools(bound);
                self.create(size)
            }
            other => other,
        };
        let handle = handle.map_err(|failed| match failed.code {
            status::OUT_OF_MEMORY => out_of_memory(self.primary, size),
            _ => self.primary.error(failed),
        })?;
        let at = self.address + mapped;
        let mapped = self.map(at, size, handle);
        if mapped.is_err() {
            // SAFETY: the memory is mapped nowhere and has no other owner.
            _ = unsafe { self.primary.api.physical_release(handle) };
        }
        mapped.map_err(|failed| self.primary.error(failed))?;
        Ok(Piece { handle, bytes: size })
    }

    /// Takes physical memory.
    fn create(&self, bytes: u64) -> Result<PhysicalHandle, Failed> {
        let (mut handle, props) = (0, PhysicalProps::of(self.primary.device));
        // SAFETY: writes one handle; reads one description.
        unsafe { self.primary.api.physical_create(&mut handle, bytes as usize, &props, 0) }?;
        Ok(handle)
    }

    fn map(&self, at: Address, bytes: u64, handle: PhysicalHandle) -> Result<(), Failed> {
        let (api, size) = (self.primary.api, bytes as usize);
        // SAFETY: the addresses are reserved, and nothing is mapped there yet.
        unsafe { api.address_map(at, size, 0, handle, 0) }?;
        // SAFETY: reads one description; the memory was mapped just now.
        let access =
            unsafe { api.address_set_access(at, size, &PoolAccess::of(self.primary.device), 1) };
        if access.is_err() {
            // SAFETY: no work has this address yet.
            _ = unsafe { api.address_unmap(at, size) };
        }
        access
    }

    /// Gives the memory and the addresses back. May block. Errors leak them.
    ///
    /// # Safety
    /// No work uses the memory any more, and none will.
    pub(crate) unsafe fn free(&self) {
        let (api, mut at) = (self.primary.api, self.address);
        for Piece { handle, bytes } in std::mem::take(&mut self.mapped.lock().pieces) {
            // SAFETY: the piece is mapped there, no work uses it any more and none will, and the memory has no other
            // owner.
            unsafe {
                _ = api.address_unmap(at, bytes as usize);
                _ = api.physical_release(handle);
            }
            at += bytes;
        }
        // SAFETY: reserved with this size, and nothing is mapped there any more.
        _ = unsafe { api.address_free(self.address, self.reserved as usize) };
    }
}

#[cold]
fn out_of_memory(primary: &Primary, requested: u64) -> Error {
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two integers.
    match unsafe { primary.api.memory_info(&mut free, &mut total) } {
        Ok(()) => {
            let (free, total) = (free as u64, total as u64);
            Error::OutOfMemory { requested, free, total, pool: None }
        }
        Err(failed) => primary.error(failed),
    }
}

/// A mapping that was freed, to be given back once the event is reached.
pub(crate) struct FreedMapping {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) after: EventHandle,
}

impl Reclaimable for FreedMapping {
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        _: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        // SAFETY: the event is owned by this item until it is destroyed below.
        let reached = unsafe { primary.api.event_query(self.after) };
        if reached.is_err_and(|failed| meaning_of_state(failed.code) == Meaning::NotReady) {
            return Some(self);
        }
        // SAFETY: everything that was enqueued before the free has run, and no table has the mapping any more.
        unsafe {
            _ = primary.api.event_destroy(self.after);
            self.mapping.free();
        }
        None
    }

    fn waits_for_device(&self, _: &Primary) -> bool {
        true
    }
}
