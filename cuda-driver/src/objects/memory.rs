//! Device memory: allocating, freeing, and the addresses of regions.

use std::{
    collections::hash_map::Entry,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cuda_core::{
    internals::IdMap,
    protocol::{AllocId, Error, MemoryInfo, ModuleId, Region, Result},
};
use parking_lot::RwLock;

use super::mapping::{FreedMapping, Mapping};
use crate::{
    context::{Bound, IdCache, MemoryPool, Primary, Reclaimable},
    driver::{
        api::{Address, EventHandle, StreamHandle},
        status::{self, Failed, Meaning, meaning_of_state},
    },
    streams::{DriverStream, taken},
};

/// The allocations of one backend.
pub(crate) struct Memory {
    primary: &'static Primary,
    table: RwLock<IdMap<AllocId, Allocation>>,
    cache: IdCache,
    /// The bytes of all allocations from the driver, without variables.
    used: Arc<AtomicU64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AddressRange {
    address: Address,
    bytes: u64,
}

/// A live allocation.
struct Allocation {
    range: AddressRange,
    source: Source,
}

enum Source {
    /// A pool, or the driver directly if the device has none. `counted` is the number of bytes that count as used on
    /// the device: 0 for managed memory, which may be on the host.
    Pool { counted: u64 },
    /// A variable of this module. The memory is freed with the module.
    Variable(ModuleId),
    /// Foreign code, which frees it.
    Foreign,
    /// Reserved addresses. The client uses only those that have memory.
    Mapping(Arc<Mapping>),
}

impl Memory {
    pub(crate) fn new(primary: &'static Primary) -> Self {
        let (table, cache) = Default::default();
        Self { primary, table, cache, used: Arc::default() }
    }

    /// Allocates from a pool in the order of a stream. Without a pool it allocates at once, which may wait for the
    /// device. `scarce` allows memory whose free on another stream has not run: use it only after a try without it.
    pub(crate) fn allocate(
        &self,
        id: AllocId,
        bytes: u64,
        pool: Option<&MemoryPool>,
        scarce: bool,
        stream: &DriverStream,
        bound: &Bound,
    ) -> Result<()> {
        // The driver allocates at least one byte, which no work may use.
        let address = self.request(bytes.max(1), pool, stream.raw, scarce, bound);
        let address = address.map_err(|failed| self.out_of_memory(bytes, failed, bound))?;
        let range = AddressRange { address, bytes };
        let counted = if pool.is_some_and(MemoryPool::is_managed) { 0 } else { bytes };
        let inserted = self.insert(id, Allocation { range, source: Source::Pool { counted } });
        if inserted.is_ok() {
            self.used.fetch_add(counted, Ordering::Relaxed);
        } else {
            self.release(address, stream, bound)?;
        }
        inserted
    }

    /// Adds a variable of a module as an allocation.
    pub(crate) fn name_variable(
        &self,
        id: AllocId,
        module: ModuleId,
        address: Address,
        bytes: u64,
    ) -> Result<()> {
        let range = AddressRange { address, bytes };
        self.insert(id, Allocation { range, source: Source::Variable(module) })
    }

    /// Adds memory of foreign code as an allocation.
    pub(crate) fn add_foreign(&self, id: AllocId, address: Address, bytes: u64) -> Result<()> {
        let range = AddressRange { address, bytes };
        self.insert(id, Allocation { range, source: Source::Foreign })
    }

    /// Removes an allocation without freeing it.
    pub(crate) fn forget(&self, id: AllocId) -> Result<()> {
        let Some(Allocation { source, .. }) = self.table.write().remove(&id) else {
            return Err(Error::no_such_object("allocation", id.0));
        };
        self.cache.evict([id.0, 0]);
        if let Source::Pool { counted } = source {
            self.used.fetch_sub(counted, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Removes the variables of a module that is unloaded.
    pub(crate) fn forget_variables(&self, module: ModuleId) {
        let is_of_module =
            |source: &Source| matches!(source, Source::Variable(of) if *of == module);
        let is_variable =
            |_: &AllocId, allocation: &mut Allocation| is_of_module(&allocation.source);
        for (id, _) in self.table.write().extract_if(is_variable) {
            self.cache.evict([id.0, 0]);
        }
    }

    fn insert(&self, id: AllocId, allocation: Allocation) -> Result<()> {
        match self.table.write().entry(id) {
            Entry::Vacant(entry) => {
                entry.insert(allocation);
                Ok(())
            }
            Entry::Occupied(_) => Err(taken("allocation", id.0)),
        }
    }

    /// Frees an allocation in the order of the stream, after all work that was enqueued there before.
    pub(crate) fn free(&self, id: AllocId, stream: &DriverStream, bound: &Bound) -> Result<()> {
        let Some(Allocation { range, source }) = self.table.write().remove(&id) else {
            return Err(Error::no_such_object("allocation", id.0));
        };
        self.cache.evict([id.0, 0]);
        match source {
            Source::Mapping(mapping) => {
                self.used.fetch_sub(mapping.committed(), Ordering::Relaxed);
                let after = self.event_behind(stream, bound)?;
                self.primary.reclaim.put(Box::new(FreedMapping { mapping, after }));
                Ok(())
            }
            Source::Foreign | Source::Variable(_) => Ok(()),
            Source::Pool { counted } => {
                self.used.fetch_sub(counted, Ordering::Relaxed);
                self.release(range.address, stream, bound)
            }
        }
    }

    /// Reserves addresses for an allocation that grows up to `bytes` bytes.
    pub(crate) fn reserve(&self, id: AllocId, bytes: u64, bound: &Bound) -> Result<()> {
        let mapping = Arc::new(Mapping::reserve(self.primary, bytes, self.used.clone(), bound)?);
        let range = AddressRange { address: mapping.address, bytes };
        let source = Source::Mapping(mapping.clone());
        self.insert(id, Allocation { range, source }).inspect_err(|_| {
            // SAFETY: no table has it, so no work can use it.
            unsafe { mapping.free() };
        })
    }

    /// Returns the mapping of a reserved allocation.
    pub(crate) fn mapping(&self, id: AllocId) -> Result<Arc<Mapping>> {
        match self.table.read().get(&id).map(|allocation| &allocation.source) {
            Some(Source::Mapping(mapping)) => Ok(mapping.clone()),
            _ => Err(Error::no_such_object("allocation", id.0)),
        }
    }

    /// The address of `bytes` bytes of a region, if they are inside its allocation.
    #[inline]
    pub(crate) fn locate(&self, region: Region, bytes: u64) -> Result<Address> {
        let allocation = match self.cache.get([region.alloc.0, 0]) {
            Some([address, bytes]) => AddressRange { address, bytes },
            None => self.look_up(region.alloc)?,
        };
        match region.offset.checked_add(bytes) {
            Some(end) if end <= allocation.bytes => Ok(allocation.address + region.offset),
            _ => Err(region.outside(bytes, allocation.bytes)),
        }
    }

    #[cold]
    fn look_up(&self, id: AllocId) -> Result<AddressRange> {
        let table = self.table.read();
        let range = table.get(&id).ok_or_else(|| Error::no_such_object("allocation", id.0))?.range;
        self.cache.insert([id.0, 0], [range.address, range.bytes]);
        Ok(range)
    }

    /// Returns the bytes of the live allocations, without variables.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Memory in use, free, and in total.
    pub(crate) fn info(primary: &Primary, used: u64, _: &Bound) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        unsafe { primary.api.memory_info(&mut free, &mut total) }
            .map_err(|failed| primary.error(failed))?;
        Ok(MemoryInfo { used, free: free as u64, total: total as u64 })
    }

    /// Takes out every allocation for a backend that is dropped, without variables, which the driver frees,
    /// and without foreign memory.
    pub(crate) fn take(&self) -> (Vec<Address>, Vec<Arc<Mapping>>) {
        let (mut memory, mut mappings) = (Vec::new(), Vec::new());
        for Allocation { range, source } in std::mem::take(&mut *self.table.write()).into_values() {
            match source {
                Source::Pool { .. } => memory.push(range.address),
                Source::Mapping(mapping) => mappings.push(mapping),
                Source::Variable(_) | Source::Foreign => {}
            }
        }
        (memory, mappings)
    }

    /// Allocates from the driver.
    fn request(
        &self,
        bytes: u64,
        pool: Option<&MemoryPool>,
        stream: StreamHandle,
        scarce: bool,
        bound: &Bound,
    ) -> Result<Address, Failed> {
        let api = self.primary.api;
        let size = usize::try_from(bytes)
            .map_err(|_| Failed { call: "cuMemAlloc", code: status::OUT_OF_MEMORY })?;
        match pool {
            // SAFETY: the caller holds the stream.
            Some(pool) if scarce => unsafe { pool.allocate_scarce(api, size, stream, bound) },
            // SAFETY: the caller holds the stream.
            Some(pool) => unsafe { pool.allocate(api, size, stream, bound) },
            None => {
                let mut address = 0;
                // SAFETY: writes one address.
                unsafe { api.memory_alloc(&mut address, size) }.map(|()| address)
            }
        }
    }

    fn release(&self, address: Address, stream: &DriverStream, bound: &Bound) -> Result<()> {
        let api = self.primary.api;
        if self.primary.pool.is_some() {
            // SAFETY: allocated from the pool, no longer in the table, and freed after its uses (rule 6).
            return unsafe { api.pool_free(address, stream.raw) }
                .map_err(|failed| self.primary.error(failed));
        }
        // `cuMemFree` waits for the whole device, so an event delays the free.
        let after = self.event_behind(stream, bound)?;
        self.primary.reclaim.put(Box::new(FreedMemory { address, after }));
        Ok(())
    }

    /// An event behind everything that was enqueued on a stream. If there is none, the memory that it frees is leaked,
    /// because its last use is not known.
    fn event_behind(&self, stream: &DriverStream, bound: &Bound) -> Result<EventHandle> {
        let after = self.primary.new_event(bound)?;
        // SAFETY: the caller holds the stream, and the event is owned here.
        unsafe { self.primary.api.event_record(after, stream.raw) }
            .map_err(|failed| self.primary.error(failed))?;
        Ok(after)
    }

    #[cold]
    fn out_of_memory(&self, requested: u64, failed: Failed, bound: &Bound) -> Error {
        if failed.code != status::OUT_OF_MEMORY {
            return self.primary.error(failed);
        }
        match Self::info(self.primary, self.used(), bound) {
            Ok(MemoryInfo { free, total, .. }) => {
                Error::OutOfMemory { requested, free, total, pool: None }
            }
            Err(error) => error,
        }
    }
}

/// Memory outside of a pool, to be freed once the event is reached.
struct FreedMemory {
    address: Address,
    after: EventHandle,
}

impl Reclaimable for FreedMemory {
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
        // SAFETY: everything that was enqueued before the free has run, and no other owner has the two.
        unsafe {
            _ = primary.api.event_destroy(self.after);
            _ = primary.api.memory_free(self.address);
        }
        None
    }
}
