//! The memory pools of one backend, beside the default one.

use std::{collections::hash_map::Entry, sync::Arc};

use cuda_core::{
    internals::IdMap,
    protocol::{Error, Feature, PoolChange, PoolId, PoolMemory, PoolSpec, Result},
};
use parking_lot::RwLock;

use crate::{
    context::{Bound, MemoryPool, Primary, Reclaimable},
    driver::status,
    streams::taken,
};

/// The pools of a backend. [`PoolId::DEFAULT`] is the pool of the device, which all backends share.
pub(crate) struct Pools {
    primary: &'static Primary,
    table: RwLock<IdMap<PoolId, Arc<MemoryPool>>>,
}

/// A pool to call the driver with. It is held.
pub(crate) enum PoolRef {
    Default(&'static MemoryPool),
    Named(Arc<MemoryPool>),
}

impl std::ops::Deref for PoolRef {
    type Target = MemoryPool;

    fn deref(&self) -> &MemoryPool {
        match self {
            PoolRef::Default(pool) => pool,
            PoolRef::Named(pool) => pool,
        }
    }
}

impl Pools {
    pub(crate) fn new(primary: &'static Primary) -> Self {
        Self { primary, table: RwLock::default() }
    }

    pub(crate) fn create(&self, id: PoolId, spec: PoolSpec, bound: &Bound) -> Result<()> {
        if self.primary.pool.is_none() {
            return Err(self.unsupported());
        }
        let Primary { named_pools: named, api, device, .. } = self.primary;
        let pool = named.create(api, *device, spec, bound).map_err(|failed| match failed.code {
            // Drivers before CUDA 13.0 and systems without managed memory return these codes.
            status::INVALID_VALUE | status::NOT_SUPPORTED if spec.is_managed => {
                Error::unsupported(Feature::ManagedPool, &self.primary.info.address)
            }
            _ => self.primary.error(failed),
        })?;
        match self.table.write().entry(id) {
            Entry::Vacant(entry) if id != PoolId::DEFAULT => {
                entry.insert(pool);
                return Ok(());
            }
            _ => {}
        }
        self.retire(pool);
        Err(taken("memory pool", id.0))
    }

    /// Drops a pool. The driver destroys it when the frees of its allocations have run.
    pub(crate) fn remove(&self, id: PoolId) -> Result<()> {
        let removed = self.table.write().remove(&id);
        self.retire(removed.ok_or_else(|| Error::no_such_object("memory pool", id.0))?);
        Ok(())
    }

    /// Drops every pool, for a backend that is dropped.
    pub(crate) fn remove_all(&self) {
        let all = std::mem::take(&mut *self.table.write());
        all.into_values().for_each(|pool| self.retire(pool));
    }

    fn retire(&self, pool: Arc<MemoryPool>) {
        self.primary.named_pools.forget(&pool);
        self.primary.reclaim.put(Box::new(DroppedPool(pool)));
    }

    pub(crate) fn change(&self, id: PoolId, change: PoolChange, bound: &Bound) -> Result<()> {
        let (pool, api) = (self.find(id)?, self.primary.api);
        match change {
            PoolChange::ReleaseThreshold(bytes) => pool.set_release_threshold(api, bytes, bound),
            PoolChange::ResetPeak => pool.reset_peak(api, bound),
            _ => {
                let address = &self.primary.info.address;
                return Err(Error::unsupported(Feature::PoolChange, address));
            }
        }
        .map_err(|failed| self.primary.error(failed))
    }

    /// The pool with this id.
    ///
    /// # Errors
    /// It does not exist, or [`Error::Unsupported`] if the device has no pools.
    pub(crate) fn find(&self, id: PoolId) -> Result<PoolRef> {
        if id == PoolId::DEFAULT {
            let default = self.primary.pool.as_ref().map(PoolRef::Default);
            return default.ok_or_else(|| self.unsupported());
        }
        let named = self.table.read().get(&id).cloned();
        named.map(PoolRef::Named).ok_or_else(|| Error::no_such_object("memory pool", id.0))
    }

    /// Returns the memory that a pool has reserved.
    pub(crate) fn memory(
        primary: &Primary,
        pool: &MemoryPool,
        bound: &Bound,
    ) -> Result<PoolMemory> {
        pool.memory(primary.api, bound).map_err(|failed| primary.error(failed))
    }

    #[cold]
    fn unsupported(&self) -> Error {
        Error::unsupported(Feature::MemoryPool, &self.primary.info.address)
    }
}

/// A pool that was dropped, with an owner of it. The frees of its allocations were enqueued.
struct DroppedPool(Arc<MemoryPool>);

impl Reclaimable for DroppedPool {
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        bound: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        match Arc::try_unwrap(self.0) {
            Ok(pool) => {
                // SAFETY: no other thread has the pool and no table names it, so the frees of its allocations were
                // enqueued.
                unsafe { pool.destroy(primary.api, bound) };
                None
            }
            Err(pool) => Some(Box::new(Self(pool))),
        }
    }

    fn waits_for_device(&self, _: &Primary) -> bool {
        true
    }
}
