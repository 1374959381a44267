//! Creates, trims and destroys the pools of a device.

use std::{ffi::c_int, sync::Arc};

use cuda_core::protocol::PoolSpec;

use super::{bound::Bound, pool::MemoryPool, primary::Primary, reclaim::Reclaimable};
use crate::driver::{api::PoolProps, status::Failed};

impl Primary {
    /// Creates a pool, and grants all peers access to its memory.
    pub(crate) fn create_pool(
        &self,
        spec: PoolSpec,
        bound: &Bound,
    ) -> Result<Arc<MemoryPool>, Failed> {
        let props = match spec.is_managed {
            true => PoolProps::of_managed(),
            false => PoolProps::of(self.device),
        };
        let keep = spec.release_threshold;
        let pool = Arc::new(MemoryPool::create(self.api, &props, keep, bound)?);
        // The lock is held while access is granted, so that a new peer misses no pool.
        let mut state = self.named_pools.0.lock();
        state.peers.iter().try_for_each(|peer| pool.grant(self.api, *peer, bound))?;
        state.pools.push(pool.clone());
        Ok(pool)
    }

    /// Forgets a pool that is dropped.
    pub(crate) fn forget_pool(&self, pool: &Arc<MemoryPool>) {
        self.named_pools.0.lock().pools.retain(|other| !Arc::ptr_eq(other, pool));
    }

    /// Lets another device read and write the memory of all pools. Access between contexts does not cover it.
    pub(crate) fn grant_pools(&self, peer: c_int, bound: &Bound) -> Result<(), Failed> {
        let Some(default) = &self.pool else { return Ok(()) };
        default.grant(self.api, peer, bound)?;
        let mut state = self.named_pools.0.lock();
        if !state.peers.contains(&peer) {
            state.pools.iter().try_for_each(|pool| pool.grant(self.api, peer, bound))?;
            state.peers.push(peer);
        }
        Ok(())
    }

    /// Returns the free memory of all pools to the system. Takes about two milliseconds a pool, and waits for no kernel.
    #[cold]
    pub(crate) fn trim_pools(&self, bound: &Bound) {
        if let Some(default) = &self.pool {
            default.trim(self.api, 0, bound);
        }
        // Trimmed without the lock: other threads create and drop pools meanwhile.
        let pools = self.named_pools.0.lock().pools.clone();
        pools.iter().for_each(|pool| pool.trim(self.api, 0, bound));
    }
}

/// A pool that was dropped, with an owner of it. The frees of its allocations were enqueued: the driver destroys such a
/// pool when they have run.
pub(crate) struct DroppedPool(pub(crate) Arc<MemoryPool>);

impl Reclaimable for DroppedPool {
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        _: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        match Arc::try_unwrap(self.0) {
            Ok(pool) => {
                // SAFETY: no other thread has the pool, and no table names it.
                _ = unsafe { primary.api.pool_destroy(pool.raw) };
                None
            }
            Err(pool) => Some(Box::new(Self(pool))),
        }
    }

    fn waits_for_device(&self, _: &Primary) -> bool {
        true
    }
}
