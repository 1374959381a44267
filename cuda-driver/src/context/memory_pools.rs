//! Memory pools: one pool of a device ([`MemoryPool`]), all pools of a device beside its default one ([`NamedPools`]),
//! and the pool of pinned host memory ([`HostMemoryPool`]).
//!
//! The pools are this library's own, so that their attributes affect no other library of the process. `objects::Pools`
//! finds the pools of one backend by the ids of the client.
//!
//! # Rules
//! The default pool of a device is never destroyed, and neither is the pool of host memory. Every other pool is held in
//! `Arc`s, and a thread that calls the driver with one holds a clone. The helper thread destroys it after the last
//! clone.

use std::{ffi::c_int, sync::Arc};

use cuda_core::protocol::{PoolMemory, PoolSpec};
use parking_lot::Mutex;

use super::bound::Bound;
use crate::driver::{
    api::{
        Address, Api, HostPointer, POOL_INTERNAL_DEPENDENCIES, POOL_RELEASE_THRESHOLD,
        POOL_RESERVED, POOL_RESERVED_PEAK, PoolAccess, PoolHandle, PoolProps, STREAM_NON_BLOCKING,
        StreamHandle,
    },
    status::Failed,
};

/// The limit for [`MemoryPool::trim`]. It exceeds the memory of any device, and rounding it up to pages does not
/// overflow.
const MAX_KEPT: u64 = 1 << 62;

/// A pool of stream-ordered memory.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    raw: PoolHandle,
    /// Held while internal dependencies are allowed, so that no other thread disables them meanwhile.
    scarce: Mutex<()>,
    /// Whether the memory is managed. Every device has access to managed memory without a grant.
    is_managed: bool,
}

impl MemoryPool {
    /// Creates a pool that keeps `keep` bytes of freed memory for the next allocations. Every synchronization returns
    /// the rest to the system, and the next allocation costs a hundred times as much.
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
        let set = pool.set_release_threshold(api, keep, bound);
        match set.and_then(|()| pool.allow_internal_dependencies(api, false)) {
            Ok(()) => Ok(pool),
            Err(failed) => {
                // SAFETY: the pool has no allocation.
                unsafe { pool.destroy(api, bound) };
                Err(failed)
            }
        }
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
    pub(super) fn grant(&self, api: &Api, device: c_int, _: &Bound) -> Result<(), Failed> {
        if self.is_managed {
            return Ok(());
        }
        // SAFETY: reads one description; the caller holds the pool.
        unsafe { api.pool_set_access(self.raw, &PoolAccess::of(device), 1) }
    }

    /// Returns free memory to the system until `keep` bytes are reserved. Takes about two milliseconds, and waits for
    /// no kernel.
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

    /// Destroys the pool. The driver does so when the frees of its allocations have run.
    ///
    /// # Safety
    /// Every allocation of the pool was freed, or its free was enqueued.
    pub(crate) unsafe fn destroy(self, api: &Api, _: &Bound) {
        // SAFETY: this value is the only owner, and no allocation of the pool is in use.
        _ = unsafe { api.pool_destroy(self.raw) };
    }

    fn allow_internal_dependencies(&self, api: &Api, allowed: bool) -> Result<(), Failed> {
        let mut allowed = c_int::from(allowed);
        // SAFETY: the value of this attribute is a 32-bit integer.
        unsafe { api.pool_set(self.raw, POOL_INTERNAL_DEPENDENCIES, (&raw mut allowed).cast()) }
    }
}

/// The pools of a device beside the default one, of all backends.
#[derive(Debug, Default)]
pub(crate) struct NamedPools(Mutex<Named>);

#[derive(Debug, Default)]
struct Named {
    pools: Vec<Arc<MemoryPool>>,
    /// The devices that were granted access, also to later pools.
    peers: Vec<c_int>,
}

impl NamedPools {
    /// Creates a pool of a device, and grants all peers access to its memory.
    pub(crate) fn create(
        &self,
        api: &Api,
        device: c_int,
        spec: PoolSpec,
        bound: &Bound,
    ) -> Result<Arc<MemoryPool>, Failed> {
        let props = match spec.is_managed {
            true => PoolProps::of_managed(),
            false => PoolProps::of(device),
        };
        let pool = MemoryPool::create(api, &props, spec.release_threshold, bound)?;
        // The lock is held while access is granted, so that a new peer misses no pool.
        let mut named = self.0.lock();
        if let Err(failed) = named.peers.iter().try_for_each(|peer| pool.grant(api, *peer, bound)) {
            // SAFETY: the pool has no allocation.
            unsafe { pool.destroy(api, bound) };
            return Err(failed);
        }
        let pool = Arc::new(pool);
        named.pools.push(pool.clone());
        Ok(pool)
    }

    /// Forgets a pool that is dropped.
    pub(crate) fn forget(&self, pool: &Arc<MemoryPool>) {
        self.0.lock().pools.retain(|other| !Arc::ptr_eq(other, pool));
    }

    /// Lets another device read and write the memory of all pools, and of later ones.
    pub(super) fn grant(&self, api: &Api, peer: c_int, bound: &Bound) -> Result<(), Failed> {
        let mut named = self.0.lock();
        if !named.peers.contains(&peer) {
            named.pools.iter().try_for_each(|pool| pool.grant(api, peer, bound))?;
            named.peers.push(peer);
        }
        Ok(())
    }

    /// Returns the free memory of all pools to the system.
    pub(super) fn trim(&self, api: &Api, bound: &Bound) {
        // Trimmed without the lock: other threads create and drop pools meanwhile.
        let pools = self.0.lock().pools.clone();
        pools.iter().for_each(|pool| pool.trim(api, 0, bound));
    }
}

/// Bytes of free memory that the pool of host memory keeps pinned for the next blocks.
const KEPT: usize = 32 << 20;

/// A pool of pinned host memory that every device can access, where the driver has such pools. Never destroyed (rule
/// 2).
///
/// `cuMemFreeHost` waits for every running kernel, and launches of other threads wait with it. Giving memory back to a
/// pool does neither. Allocations and frees use one stream, which runs nothing else. So both take effect at once, and
/// never wait for work of the device. Memory is freed after its last use: a free here is ordered after no copy.
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
        // `give_back` decides how much free memory is kept. Otherwise every synchronization of a stream would unpin it.
        let mut keep = u64::MAX;
        // SAFETY: reads as many descriptions as are stated.
        let set = unsafe { api.pool_set_access(raw, access.as_ptr(), access.len()) }
            // SAFETY: the value of this attribute is a 64-bit integer.
            .and_then(|()| unsafe {
                api.pool_set(raw, POOL_RELEASE_THRESHOLD, (&raw mut keep).cast())
            })
            // SAFETY: writes one handle.
            .and_then(|()| unsafe { api.stream_create(&mut stream, STREAM_NON_BLOCKING, 0) });
        match set {
            Ok(()) => Ok(Self { raw, stream }),
            Err(failed) => {
                // SAFETY: the pool has no allocation, and no other owner.
                _ = unsafe { api.pool_destroy(raw) };
                Err(failed)
            }
        }
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
