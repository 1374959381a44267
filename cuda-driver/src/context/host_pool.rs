//! A pool of pinned host memory, where the driver has such pools.
//!
//! `cuMemFreeHost` waits for every running kernel, and launches of other threads wait with it. Giving memory back to a
//! pool does neither.
//!
//! # Rules
//! - Allocations and frees use one stream, which runs nothing else. So both take effect at once, and never wait for
//!   work of the device.
//! - Memory is freed after its last use: a free here is ordered after no copy.

use std::ffi::c_int;

use super::bound::Bound;
use crate::driver::{
    api::{
        Api, HostPointer, POOL_RELEASE_THRESHOLD, PoolAccess, PoolHandle, PoolProps,
        STREAM_NON_BLOCKING, StreamHandle,
    },
    status::Failed,
};

/// Bytes of free memory that the pool keeps pinned for the next blocks.
const KEPT: usize = 32 << 20;

/// A pool of pinned host memory that every device can access. Never destroyed (rule 2).
#[derive(Debug)]
pub(crate) struct HostMemoryPool {
    raw: PoolHandle,
    stream: StreamHandle,
}

impl HostMemoryPool {
    /// Creates a pool that `devices` can access.
    pub(super) fn create(api: &Api, devices: &[c_int], _: &Bound) -> Result<Self, Failed> {
        let (mut raw, mut stream) = (PoolHandle::NULL, StreamHandle::NULL);
        // SAFETY: writes one handle; reads one description.
        unsafe { api.pool_create(&mut raw, &PoolProps::of_host()) }?;
        let access: Vec<_> = devices.iter().copied().map(PoolAccess::of).collect();
        // SAFETY: reads as many descriptions as are stated.
        unsafe { api.pool_set_access(raw, access.as_ptr(), access.len()) }?;
        // `give_back` decides how much free memory is kept. Otherwise every synchronization of a stream would unpin it.
        let mut keep = u64::MAX;
        // SAFETY: the value of this attribute is a 64-bit integer.
        unsafe { api.pool_set(raw, POOL_RELEASE_THRESHOLD, (&raw mut keep).cast()) }?;
        // SAFETY: writes one handle.
        unsafe { api.stream_create(&mut stream, STREAM_NON_BLOCKING, 0) }?;
        Ok(Self { raw, stream })
    }

    /// Allocates pinned memory. May block for as long as the system needs to pin it.
    pub(crate) fn allocate(
        &self,
        api: &Api,
        bytes: usize,
        _: &Bound,
    ) -> Result<HostPointer, Failed> {
        let mut address = 0;
        // SAFETY: writes one address; the pool and the stream are never destroyed.
        unsafe { api.pool_alloc(&mut address, bytes, self.raw, self.stream) }?;
        // The memory may be used once the stream has passed the allocation.
        // SAFETY: the stream is never destroyed.
        unsafe { api.stream_synchronize(self.stream) }?;
        Ok(HostPointer::shared(address))
    }

    /// Gives memory back, and unpins free memory beyond [`KEPT`]. Waits for no kernel.
    ///
    /// # Safety
    /// The memory came from [`allocate`](Self::allocate), and nothing uses it any more.
    pub(crate) unsafe fn give_back(&self, api: &Api, memory: HostPointer, bound: &Bound) {
        let address = memory.0.expose_provenance() as u64;
        // SAFETY: the memory came from `allocate`, and nothing uses it any more. The stream is never destroyed.
        if unsafe { api.pool_free(address, self.stream) }.is_ok() {
            // The stream is idle, so this returns at once. Until then the driver does not trim the memory.
            // SAFETY: the stream is never destroyed.
            _ = unsafe { api.stream_synchronize(self.stream) };
            self.trim(api, KEPT, bound);
        }
    }

    /// Unpins all free memory.
    pub(super) fn trim_all(&self, api: &Api, bound: &Bound) {
        self.trim(api, 0, bound);
    }

    fn trim(&self, api: &Api, keep: usize, _: &Bound) {
        // A failure is ignored: the memory stays pinned, and this pool can still use it.
        // SAFETY: the pool is never destroyed.
        _ = unsafe { api.pool_trim(self.raw, keep) };
    }
}
