//! Memory pools of a device: this library's own, so that their attributes affect no other library of the process.
//!
//! # Rules
//! The default pool of a device is never destroyed. Every other pool is held in `Arc`s, and a thread that calls the
//! driver with one holds a clone. [`DroppedPool`](super::DroppedPool) destroys it after the last clone, on the helper thread.

use std::ffi::c_int;

use cuda_core::protocol::PoolMemory;
use parking_lot::Mutex;

use super::bound::Bound;
use crate::driver::{
    api::{
        Address, Api, POOL_INTERNAL_DEPENDENCIES, POOL_RELEASE_THRESHOLD, POOL_RESERVED,
        POOL_RESERVED_PEAK, PoolAccess, PoolHandle, PoolProps, StreamHandle,
    },
    status::Failed,
};

/// The limit for [`MemoryPool::trim`]. It exceeds the memory of any device, and rounding it up to pages does not
/// overflow.
const MAX_KEPT: u64 = 1 << 62;

/// A pool of stream-ordered memory.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    pub(super) raw: PoolHandle,
    /// Held while internal dependencies are allowed, so that no other thread disables them meanwhile.
    scarce: Mutex<()>,
    /// Whether the memory is managed. Every device has access to managed memory without a grant.
    is_managed: bool,
}

impl MemoryPool {
    /// Creates a pool that keeps `keep` bytes of freed memory for the next allocations. Every synchronization returns the
    /// rest to the system, and the next allocation costs a hundred times as much.
    pub(super) fn create(
        api: &Api,
        props: &PoolProps,
        keep: u64,
        bound: &Bound,
    ) -> Result<Self, Failed> {
        let mut raw = PoolHandle::NULL;
        // SAFETY: writes one handle; reads one description.
        unsafe { api.pool_create(&mut raw, props) }?;
        let pool = Self { raw, scarce: Mutex::default(), is_managed: props.is_managed() };
        pool.set_release_threshold(api, keep, bound)?;
        pool.allow_internal_dependencies(api, false)?;
        Ok(pool)
    }

    /// Allocates in the order of a stream. Does not reuse memory whose free on another stream has not run.
    ///
    /// # Safety
    /// The caller holds the stream.
    pub(crate) unsafe fn allocate(
        &self,
        api: &Api,
        bytes: usize,
        stream: StreamHandle,
        _: &Bound,
    ) -> Result<Address, Failed> {
        let mut address = 0;
        // SAFETY: writes one address; the stream is held.
        unsafe { api.pool_alloc(&mut address, bytes, self.raw, stream) }?;
        Ok(address)
    }

    /// Allocates, and may reuse memory whose free on another stream has not run. The stream then waits for that free.
    /// Use it only after [`allocate`](Self::allocate) found no memory.
    ///
    /// # Safety
    /// As for [`allocate`](Self::allocate).
    pub(crate) unsafe fn allocate_scarce(
        &self,
        api: &Api,
        bytes: usize,
        stream: StreamHandle,
        bound: &Bound,
    ) -> Result<Address, Failed> {
        let _scarce = self.scarce.lock();
        self.allow_internal_dependencies(api, true)?;
        // SAFETY: the caller holds the stream.
        let allocated = unsafe { self.allocate(api, bytes, stream, bound) };
        // If this fails, the allocation is still valid. Later allocations may then wait for other streams.
        _ = self.allow_internal_dependencies(api, false);
        allocated
    }

    /// Returns whether the memory is managed.
    pub(crate) const fn is_managed(&self) -> bool {
        self.is_managed
    }

    /// Lets another device read and write the memory of this pool. Does nothing for managed memory.
    pub(crate) fn grant(&self, api: &Api, device: c_int, _: &Bound) -> Result<(), Failed> {
        if self.is_managed {
            return Ok(());
        }
        // SAFETY: reads one description; the caller holds the pool.
        unsafe { api.pool_set_access(self.raw, &PoolAccess::of(device), 1) }
    }

    /// Returns free memory to the system until `keep` bytes are reserved. Takes about two milliseconds, and waits for no
    /// kernel.
    pub(crate) fn trim(&self, api: &Api, keep: u64, _: &Bound) {
        // The driver rounds `keep` up to whole pages. Without the limit, `u64::MAX` would overflow to 0.
        let keep = usize::try_from(keep.min(MAX_KEPT)).unwrap_or(usize::MAX);
        // A failure is ignored: the memory stays in the pool, which can still use it.
        // SAFETY: the caller holds the pool.
        _ = unsafe { api.pool_trim(self.raw, keep) };
    }

    /// Sets the bytes that the pool keeps reserved.
    pub(crate) fn set_release_threshold(
        &self,
        api: &Api,
        mut keep: u64,
        _: &Bound,
    ) -> Result<(), Failed> {
        // SAFETY: the value of this attribute is a 64-bit integer; the caller holds the pool.
        unsafe { api.pool_set(self.raw, POOL_RELEASE_THRESHOLD, (&raw mut keep).cast()) }
    }

    /// Sets the peak of the reserved bytes to the bytes that are reserved now.
    pub(crate) fn reset_peak(&self, api: &Api, _: &Bound) -> Result<(), Failed> {
        let mut zero = 0u64; // the only value that the driver takes
        // SAFETY: the value of this attribute is a 64-bit integer; the caller holds the pool.
        unsafe { api.pool_set(self.raw, POOL_RESERVED_PEAK, (&raw mut zero).cast()) }
    }

    /// Returns the memory that the pool has reserved.
    pub(crate) fn memory(&self, api: &Api, _: &Bound) -> Result<PoolMemory, Failed> {
        let get = |attribute| {
            let mut value = 0u64;
            // SAFETY: the value of these attributes is a 64-bit integer; the caller holds the pool.
            unsafe { api.pool_get(self.raw, attribute, (&raw mut value).cast()) }.map(|()| value)
        };
        let reserved = get(POOL_RESERVED)?;
        Ok(PoolMemory {
            reserved,
            // After a reset it is 0 until the pool grows.
            reserved_peak: get(POOL_RESERVED_PEAK)?.max(reserved),
            release_threshold: get(POOL_RELEASE_THRESHOLD)?,
        })
    }

    fn allow_internal_dependencies(&self, api: &Api, allowed: bool) -> Result<(), Failed> {
        let mut allowed = c_int::from(allowed);
        // SAFETY: the value of this attribute is a 32-bit integer.
        unsafe { api.pool_set(self.raw, POOL_INTERNAL_DEPENDENCIES, (&raw mut allowed).cast()) }
    }
}
