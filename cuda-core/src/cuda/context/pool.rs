//! The memory pool of a device: this library's own, so that its attributes affect no other library of the process.

use std::ffi::c_int;

use parking_lot::Mutex;

use super::bound::Bound;
use crate::cuda::driver::{
    api::{
        Address, Api, POOL_INTERNAL_DEPENDENCIES, POOL_RELEASE_THRESHOLD, PoolAccess, PoolHandle,
        PoolProps, StreamHandle,
    },
    status::Failed,
};

/// A pool of stream-ordered memory. Never destroyed (rule 2).
#[derive(Debug)]
pub(crate) struct MemoryPool {
    raw: PoolHandle,
    /// Held while internal dependencies are allowed, so that no other thread disables them meanwhile.
    scarce: Mutex<()>,
}

impl MemoryPool {
    /// Creates a pool that keeps freed memory for the next allocations. Otherwise every synchronization would return it
    /// to the system, and the next allocation would cost a hundred times as much.
    pub(super) fn create(api: &Api, device: c_int, _: &Bound) -> Result<Self, Failed> {
        let (mut raw, mut keep) = (PoolHandle::NULL, u64::MAX);
        // SAFETY: writes one handle; reads one description.
        unsafe { api.pool_create(&mut raw, &PoolProps::of(device)) }?;
        let pool = Self { raw, scarce: Mutex::default() };
        // SAFETY: the value of this attribute is a 64-bit integer.
        unsafe { api.pool_set(raw, POOL_RELEASE_THRESHOLD, (&raw mut keep).cast()) }?;
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
        // SAFETY: the caller's promise.
        let allocated = unsafe { self.allocate(api, bytes, stream, bound) };
        // If this fails, the allocation is still valid. Later allocations may then wait for other streams.
        _ = self.allow_internal_dependencies(api, false);
        allocated
    }

    /// Lets another device read and write the memory of this pool.
    pub(crate) fn grant(&self, api: &Api, device: c_int, _: &Bound) -> Result<(), Failed> {
        // SAFETY: reads one description; the pool is never destroyed.
        unsafe { api.pool_set_access(self.raw, &PoolAccess::of(device), 1) }
    }

    /// Returns free memory to the system. May block.
    pub(crate) fn trim(&self, api: &Api, _: &Bound) {
        // A failure is ignored: the memory stays in the pool, which can still use it.
        // SAFETY: the pool is never destroyed.
        _ = unsafe { api.pool_trim(self.raw, 0) };
    }

    fn allow_internal_dependencies(&self, api: &Api, allowed: bool) -> Result<(), Failed> {
        let mut allowed = c_int::from(allowed);
        // SAFETY: the value of this attribute is a 32-bit integer.
        unsafe { api.pool_set(self.raw, POOL_INTERNAL_DEPENDENCIES, (&raw mut allowed).cast()) }
    }
}
