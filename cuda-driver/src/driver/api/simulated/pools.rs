//! The memory pools of the simulated driver: numbers without memory. Frees run at once.

use std::{collections::HashMap, ffi::c_int};

use crate::driver::{
    api::{Address, POOL_RELEASE_THRESHOLD, POOL_RESERVED, POOL_RESERVED_PEAK},
    status,
};

/// The bytes of every device.
pub(super) const MEMORY: u64 = 1 << 33;

/// The bytes of a pool of managed memory, which includes memory of the host.
const MANAGED: u64 = 1 << 40;

/// The page size. As in the driver, [`Pools::trim`] rounds up to whole pages.
const PAGE: u64 = 2 << 20;

#[derive(Default)]
pub(super) struct Pools {
    table: HashMap<usize, Pool>,
    allocations: HashMap<Address, (usize, u64)>,
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
    pub(super) fn create(&mut self, pool: usize, device: c_int, is_managed: bool) {
        self.table.insert(pool, Pool { device, is_managed, ..Pool::default() });
    }

    pub(super) fn destroy(&mut self, pool: usize) -> c_int {
        self.table.remove(&pool).map_or(status::INVALID_VALUE, |_| 0)
    }

    pub(super) fn of_device(&self, device: c_int) -> usize {
        self.table.values().filter(|pool| pool.device == device).count()
    }

    pub(super) fn set(
        &mut self,
        pool: usize,
        attribute: c_int,
        value: impl FnOnce() -> u64,
    ) -> c_int {
        let Some(pool) = self.table.get_mut(&pool) else { return status::INVALID_VALUE };
        match attribute {
            POOL_RELEASE_THRESHOLD => pool.release_threshold = value(),
            POOL_RESERVED_PEAK => pool.peak = value(),
            _ => {}
        }
        0
    }

    pub(super) fn get(&self, pool: usize, attribute: c_int) -> Option<u64> {
        let pool = self.table.get(&pool)?;
        match attribute {
            POOL_RELEASE_THRESHOLD => Some(pool.release_threshold),
            POOL_RESERVED => Some(pool.reserved),
            POOL_RESERVED_PEAK => Some(pool.peak),
            _ => None,
        }
    }

    pub(super) fn trim(&mut self, pool: usize, keep: u64) -> c_int {
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

    pub(super) fn allocate(&mut self, pool: usize, address: Address, bytes: u64) -> c_int {
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

    pub(super) fn free(&mut self, address: Address) {
        if let Some((pool, bytes)) = self.allocations.remove(&address)
            && let Some(pool) = self.table.get_mut(&pool)
        {
            pool.used -= bytes;
        }
    }
}
