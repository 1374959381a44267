//! The memory of the simulated driver: pools, reserved addresses and physical memory, as numbers without memory.

use std::{
    collections::{HashMap, HashSet},
    ffi::{c_int, c_void},
};

use super::{Capture, give, handle, state};
use crate::driver::{
    api::{
        Address, Api, POOL_RELEASE_THRESHOLD, POOL_RESERVED, POOL_RESERVED_PEAK, PhysicalHandle,
        PhysicalProps, PoolAccess, PoolHandle, PoolProps, StreamHandle,
    },
    status,
};

// The backend passes pointers that are valid for writes, as the driver's manual demands.
calls! {
    pool_create(pool: *mut PoolHandle, props: *const PoolProps) {
        let mut state = state();
        let number = state.new_handle();
        // SAFETY: `props` is valid for reads.
        let (device, is_managed) = unsafe { ((*props).device, (*props).is_managed()) };
        state.pools.create(number, device, is_managed);
        // SAFETY: `pool` is valid for writes.
        unsafe { give(pool, PoolHandle(handle(number))) }
    }
    pool_destroy(pool: PoolHandle) { state().pools.destroy(pool.0.addr()) }
    pool_set(pool: PoolHandle, attribute: c_int, value: *mut c_void) {
        // SAFETY: `value` is valid for reads of 64 bits, the size of the attributes that `set` reads.
        state().pools.set(pool.0.addr(), attribute, || unsafe { value.cast::<u64>().read() })
    }
    pool_get(pool: PoolHandle, attribute: c_int, value: *mut c_void) {
        match state().pools.get(pool.0.addr(), attribute) {
            // SAFETY: `value` is valid for writes.
            Some(found) => unsafe { give(value.cast::<u64>(), found) },
            None => status::INVALID_VALUE,
        }
    }
    pool_trim(pool: PoolHandle, keep: usize) { state().pools.trim(pool.0.addr(), keep as u64) }
    pool_alloc(to: *mut Address, bytes: usize, pool: PoolHandle, _stream: StreamHandle) {
        let mut state = state();
        let address = (state.new_handle() as u64).next_multiple_of(256);
        let status = state.pools.allocate(pool.0.addr(), address, bytes as u64);
        if status != 0 {
            return status;
        }
        state.handles = address as usize + bytes;
        // SAFETY: `to` is valid for writes.
        unsafe { give(to, address) }
    }
    pool_free(address: Address, stream: StreamHandle) {
        let mut state = state();
        state.pools.free(address);
        let stream = state.stream(stream);
        stream.captured += usize::from(stream.capture != Capture::None);
        0
    }
    physical_granularity(bytes: *mut usize, _props: *const PhysicalProps, _option: c_int) {
        // SAFETY: `bytes` is valid for writes.
        unsafe { give(bytes, GRANULARITY) }
    }
    physical_create(
        memory: *mut PhysicalHandle, bytes: usize, _props: *const PhysicalProps, _flags: u64,
    ) {
        let created = state().mappings.create(bytes);
        // SAFETY: `memory` is valid for writes.
        created.map_or(status::OUT_OF_MEMORY, |handle| unsafe { give(memory, handle) })
    }
    physical_release(memory: PhysicalHandle) { state().mappings.release(memory) }
    address_reserve(
        to: *mut Address, bytes: usize, _align: usize, _at: Address, _flags: u64,
    ) {
        let address = state().mappings.reserve(bytes);
        // SAFETY: `to` is valid for writes.
        unsafe { give(to, address) }
    }
    address_map(
        at: Address, bytes: usize, _offset: usize, memory: PhysicalHandle, _flags: u64,
    ) {
        state().mappings.map(at, bytes, memory)
    }
    address_set_access(
        _at: Address, _bytes: usize, _access: *const PoolAccess, _count: usize,
    ) { 0 }
    address_unmap(at: Address, bytes: usize) { state().mappings.unmap(at, bytes) }
    address_free(at: Address, bytes: usize) { state().mappings.free(at, bytes) }
}

/// The bytes of every device.
pub(super) const MEMORY: u64 = 1 << 33;

/// The bytes of a pool of managed memory, which includes memory of the host.
const MANAGED: u64 = 1 << 40;

/// The page size. As in the driver, [`Pools::trim`] rounds up to whole pages.
const PAGE: u64 = 2 << 20;

/// The memory pools. Frees run at once.
#[derive(Default)]
pub(super) struct Pools {
    table: HashMap<usize, Pool>,
    allocations: HashMap<Address, (usize, u64)>,
    /// The devices whose pools take no attribute.
    refusing: HashSet<c_int>,
}

#[derive(Default)]
struct Pool {
    device: c_int,
    /// Whether the memory is managed. It may be on the host, so it does not count for the device.
    is_managed: bool,
    used: u64,
    reserved: u64,
    peak: u64,
    release_threshold: u64,
}

impl Pools {
    fn create(&mut self, pool: usize, device: c_int, is_managed: bool) {
        self.table.insert(pool, Pool { device, is_managed, ..Pool::default() });
    }

    fn destroy(&mut self, pool: usize) -> c_int {
        self.table.remove(&pool).map_or(status::INVALID_VALUE, |_| 0)
    }

    pub(super) fn refuse_attributes(&mut self, device: c_int, refuse: bool) {
        match refuse {
            true => self.refusing.insert(device),
            false => self.refusing.remove(&device),
        };
    }

    pub(super) fn of_device(&self, device: c_int) -> usize {
        self.table.values().filter(|pool| pool.device == device).count()
    }

    fn set(&mut self, pool: usize, attribute: c_int, value: impl FnOnce() -> u64) -> c_int {
        let Some(pool) = self.table.get_mut(&pool) else { return status::INVALID_VALUE };
        if self.refusing.contains(&pool.device) {
            return status::INVALID_VALUE;
        }
        match attribute {
            POOL_RELEASE_THRESHOLD => pool.release_threshold = value(),
            POOL_RESERVED_PEAK => pool.peak = value(),
            _ => {}
        }
        0
    }

    fn get(&self, pool: usize, attribute: c_int) -> Option<u64> {
        let pool = self.table.get(&pool)?;
        match attribute {
            POOL_RELEASE_THRESHOLD => Some(pool.release_threshold),
            POOL_RESERVED => Some(pool.reserved),
            POOL_RESERVED_PEAK => Some(pool.peak),
            _ => None,
        }
    }

    fn trim(&mut self, pool: usize, keep: u64) -> c_int {
        let Some(pool) = self.table.get_mut(&pool) else { return status::INVALID_VALUE };
        // The driver's rounding overflows too.
        let keep = keep.wrapping_add(PAGE - 1) / PAGE * PAGE;
        pool.reserved = pool.reserved.min(pool.used.max(keep));
        0
    }

    /// The bytes that no pool of a device has reserved.
    pub(super) fn left(&self, device: c_int) -> u64 {
        let pools = self.table.values().filter(|pool| pool.device == device && !pool.is_managed);
        MEMORY - pools.map(|pool| pool.reserved).sum::<u64>()
    }

    fn allocate(&mut self, pool: usize, address: Address, bytes: u64) -> c_int {
        let Some(device) = self.table.get(&pool).map(|pool| pool.device) else {
            return status::INVALID_VALUE;
        };
        let left = self.left(device);
        let Some(of) = self.table.get_mut(&pool) else { return status::INVALID_VALUE };
        let more = (of.used + bytes).saturating_sub(of.reserved);
        if more > if of.is_managed { MANAGED - of.reserved } else { left } {
            return status::OUT_OF_MEMORY;
        }
        of.used += bytes;
        of.reserved += more;
        of.peak = of.peak.max(of.reserved);
        self.allocations.insert(address, (pool, bytes));
        0
    }

    fn free(&mut self, address: Address) {
        if let Some((pool, bytes)) = self.allocations.remove(&address)
            && let Some(pool) = self.table.get_mut(&pool)
        {
            pool.used -= bytes;
        }
    }
}

/// The unit of physical memory.
const GRANULARITY: usize = 1 << 21;

/// The largest piece of physical memory that is not refused.
const LARGEST: usize = 1 << 32;

/// Reserved addresses and physical memory. Misuse is refused.
#[derive(Default)]
pub(super) struct Mappings {
    next: u64,
    reserved: HashMap<Address, usize>,
    mapped: HashMap<Address, (usize, PhysicalHandle)>,
    physical: HashMap<PhysicalHandle, usize>,
}

const fn status(done: bool) -> c_int {
    if done { 0 } else { status::INVALID_VALUE }
}

impl Mappings {
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.reserved.len(), self.mapped.len(), self.physical.len()]
    }

    fn create(&mut self, bytes: usize) -> Option<PhysicalHandle> {
        if bytes > LARGEST {
            return None;
        }
        self.next += 1;
        self.physical.insert(self.next, bytes);
        Some(self.next)
    }

    /// The memory stays while it is mapped, as in the driver.
    fn release(&mut self, memory: PhysicalHandle) -> c_int {
        status(self.physical.remove(&memory).is_some())
    }

    fn reserve(&mut self, bytes: usize) -> Address {
        let address = (1 << 40) + (self.next << 21);
        self.next += 1 + (bytes / GRANULARITY) as u64;
        self.reserved.insert(address, bytes);
        address
    }

    fn map(&mut self, at: Address, bytes: usize, memory: PhysicalHandle) -> c_int {
        let inside = self
            .reserved
            .iter()
            .any(|(start, size)| *start <= at && at + bytes as u64 <= start + *size as u64);
        let fits = self.physical.get(&memory) == Some(&bytes) && bytes.is_multiple_of(GRANULARITY);
        let done = inside && fits && !self.mapped.contains_key(&at);
        if done {
            self.mapped.insert(at, (bytes, memory));
        }
        status(done)
    }

    fn unmap(&mut self, at: Address, bytes: usize) -> c_int {
        status(self.mapped.remove(&at).is_some_and(|(size, _)| size == bytes))
    }

    fn free(&mut self, at: Address, bytes: usize) -> c_int {
        let end = at + bytes as u64;
        let is_free = !self.mapped.keys().any(|address| (at..end).contains(address));
        status(is_free && self.reserved.remove(&at) == Some(bytes))
    }
}
