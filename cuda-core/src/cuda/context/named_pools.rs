//! The pools of a device beside the default one, of all backends.

use std::{ffi::c_int, sync::Arc};

use parking_lot::Mutex;

use super::{bound::Bound, pool::MemoryPool, primary::Primary};
use crate::cuda::driver::status::Failed;

/// The pools that exist, and the devices that may access them.
#[derive(Debug, Default)]
pub(crate) struct NamedPools(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    pools: Vec<Arc<MemoryPool>>,
    /// The devices that were granted access, also to later pools.
    peers: Vec<c_int>,
}

impl Primary {
    /// Creates a pool that keeps `keep` bytes of freed memory.
    pub(crate) fn create_pool(&self, keep: u64, bound: &Bound) -> Result<Arc<MemoryPool>, Failed> {
        let pool = Arc::new(MemoryPool::create(self.api, self.device, keep, bound)?);
        // The lock is held while access is granted, so that a new peer misses no pool.
        let mut state = self.named_pools.0.lock();
        state.peers.iter().try_for_each(|peer| pool.grant(self.api, *peer, bound))?;
        state.pools.push(pool.clone());
        Ok(pool)
    }

    /// Forgets a pool that is dropped.
    pub(crate) fn forget_pool(&self, pool: &Arc<MemoryPool>) {
        self.named_pools.0.lock().pools.retain(|it| !Arc::ptr_eq(it, pool));
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
