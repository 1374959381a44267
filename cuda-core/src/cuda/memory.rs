//! Device memory: allocating, freeing, and finding where a region is.

use std::{
    collections::hash_map::Entry,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::{
    api::{Address, StreamHandle},
    context::{Bound, Primary},
    discard::{Discarded, Stream},
    recent::Recent,
    status::{self, Failed},
    streams::{new_event, taken, unknown},
};
use crate::{AllocId, Error, MemoryInfo, Region, Result};

/// The allocations of one backend.
pub(super) struct Memory {
    primary: &'static Primary,
    table: RwLock<FxHashMap<AllocId, Allocation>>,
    recent: Recent,
    /// Bytes of all of them.
    used: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Allocation {
    address: Address,
    bytes: u64,
}

impl Memory {
    pub(super) fn new(primary: &'static Primary) -> Self {
        let (table, recent) = Default::default();
        Self { primary, table, recent, used: AtomicU64::new(0) }
    }

    /// Allocates in the stream's order, where the device can; else at once, which may wait for it.
    pub(super) fn alloc(
        &self,
        id: AllocId,
        bytes: u64,
        stream: &Stream,
        bound: &Bound,
    ) -> Result<()> {
        if bytes == 0 {
            let detail = "0 bytes cannot be allocated".into();
            return Err(Error::OutOfRange { what: "an allocation".into(), detail });
        }
        let address = match self.ask_for(bytes, stream.raw) {
            Err(Failed { code: status::OUT_OF_MEMORY, .. }) => {
                // What was dropped may be enough, or what other streams have yet to free.
                self.primary.drain_device_memory(bound);
                self.primary.with_internal_waits(bound, || self.ask_for(bytes, stream.raw))
            }
            other => other,
        }
        .map_err(|failed| self.out_of_memory(bytes, failed, bound))?;
        let fresh = match self.table.write().entry(id) {
            Entry::Vacant(entry) => {
                entry.insert(Allocation { address, bytes });
                true
            }
            Entry::Occupied(_) => false,
        };
        if fresh {
            self.used.fetch_add(bytes, Ordering::Relaxed);
            return Ok(());
        }
        self.release(address, stream, bound)?;
        Err(taken(format!("allocation {}", id.0)))
    }

    /// Frees behind what the stream has.
    pub(super) fn free(&self, id: AllocId, stream: &Stream, bound: &Bound) -> Result<()> {
        let Some(allocation) = self.table.write().remove(&id) else {
            return Err(self.unknown(id));
        };
        self.recent.forget([id.0, 0]);
        self.used.fetch_sub(allocation.bytes, Ordering::Relaxed);
        self.release(allocation.address, stream, bound)
    }

    /// Where `bytes` bytes of a region are, if they are inside its allocation.
    #[inline]
    pub(super) fn locate(&self, region: Region, bytes: u64) -> Result<Address> {
        let allocation = match self.recent.get([region.alloc.0, 0]) {
            Some([address, bytes]) => Allocation { address, bytes },
            None => self.look_up(region.alloc)?,
        };
        match region.offset.checked_add(bytes) {
            Some(end) if end <= allocation.bytes => Ok(allocation.address + region.offset),
            _ => Err(outside("allocation", region.alloc.0, allocation.bytes, region.offset, bytes)),
        }
    }

    #[cold]
    fn look_up(&self, id: AllocId) -> Result<Allocation> {
        let found = self.table.read().get(&id).copied();
        let allocation = found.ok_or_else(|| self.unknown(id))?;
        self.recent.put([id.0, 0], [allocation.address, allocation.bytes]);
        Ok(allocation)
    }

    /// What is used, free and there.
    pub(super) fn info(&self, _: &Bound) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        unsafe { self.primary.api.memory_info(&mut free, &mut total) }
            .map_err(|failed| self.primary.error(failed))?;
        let used = self.used.load(Ordering::Relaxed);
        Ok(MemoryInfo { used, free: free as u64, total: total as u64 })
    }

    /// Takes everything out, for a backend that is dropped.
    pub(super) fn take(&mut self) -> Vec<Address> {
        std::mem::take(self.table.get_mut()).into_values().map(|it| it.address).collect()
    }

    fn ask_for(&self, bytes: u64, stream: StreamHandle) -> Result<Address, Failed> {
        let api = self.primary.api;
        let size = usize::try_from(bytes)
            .map_err(|_| Failed { call: "cuMemAlloc", code: status::OUT_OF_MEMORY })?;
        let mut address = 0;
        if self.primary.pools {
            // SAFETY: writes one address; the caller holds the stream.
            unsafe { api.pool_alloc(&mut address, size, stream)? };
        } else {
            // SAFETY: writes one address.
            unsafe { api.memory_alloc(&mut address, size)? };
        }
        Ok(address)
    }

    fn release(&self, address: Address, stream: &Stream, bound: &Bound) -> Result<()> {
        let api = self.primary.api;
        if self.primary.pools {
            // SAFETY: allocated by `pool_alloc`, out of the table, freed behind its uses.
            return unsafe { api.pool_free(address, stream.raw) }
                .map_err(|failed| self.primary.error(failed));
        }
        // Freeing it now would wait for the whole device: mark the place, free it later.
        let after = new_event(self.primary, bound)?;
        // SAFETY: both are held.
        unsafe { api.event_record(after, stream.raw) }
            .map_err(|failed| self.primary.error(failed))?;
        self.primary.trash.put(Discarded::Memory { address, after });
        Ok(())
    }

    #[cold]
    fn out_of_memory(&self, requested: u64, failed: Failed, bound: &Bound) -> Error {
        if failed.code != status::OUT_OF_MEMORY {
            return self.primary.error(failed);
        }
        match self.info(bound) {
            Ok(MemoryInfo { free, total, .. }) => Error::OutOfMemory { requested, free, total },
            Err(error) => error,
        }
    }

    #[cold]
    fn unknown(&self, id: AllocId) -> Error {
        unknown(format!("allocation {}", id.0), &self.primary.info.address)
    }
}

/// The error for bytes that are not inside what they name.
#[cold]
pub(super) fn outside(what: &str, id: u64, has: u64, offset: u64, bytes: u64) -> Error {
    let detail = format!("{bytes} bytes at offset {offset} do not fit, it has {has}");
    Error::OutOfRange { what: format!("{what} {id}").into(), detail }
}
