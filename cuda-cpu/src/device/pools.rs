//! The memory pools of the device: how much memory each of them uses and keeps.
//!
//! Memory of the CPU device is memory of the host, which is given back at once. The pools count as those of a GPU do: a
//! pool keeps freed bytes up to its release threshold, and no other pool has them until they are returned. So a program
//! that runs out of memory on a GPU because of its pools does so here too. The default pool keeps nothing.
//!
//! As in `memory::accounting`, a free counts from its submission.

use cuda_core::{
    Result,
    internals::IdMap,
    protocol::{Error, PoolChange, PoolId, PoolMemory, PoolSpec},
};

/// The pools that exist. The default pool always does.
pub(super) struct Pools {
    table: IdMap<PoolId, Pool>,
    /// The sum of the idle bytes of all pools.
    idle: u64,
}

#[derive(Default)]
struct Pool {
    used: u64,
    /// Freed bytes that the pool keeps.
    idle: u64,
    peak: u64,
    release_threshold: u64,
}

impl Default for Pools {
    fn default() -> Self {
        let table = IdMap::from_iter([(PoolId::DEFAULT, Pool::default())]);
        Self { table, idle: 0 }
    }
}

impl Pools {
    pub(super) fn create(&mut self, id: PoolId, spec: PoolSpec) {
        let release_threshold = spec.release_threshold;
        self.table.insert(id, Pool { release_threshold, ..Pool::default() });
    }

    /// Drops a pool, whose allocations were freed.
    pub(super) fn remove(&mut self, id: PoolId) {
        let removed = self.table.remove(&id);
        self.idle -= removed.map_or(0, |pool| pool.idle);
    }

    pub(super) fn change(&mut self, id: PoolId, change: PoolChange) -> Result<()> {
        let pool = self.pool(id)?;
        match change {
            PoolChange::ReleaseThreshold(bytes) => {
                pool.release_threshold = bytes;
                self.shrink(id);
            }
            PoolChange::ResetPeak => pool.peak = pool.used + pool.idle,
            _ => {}
        }
        Ok(())
    }

    /// Returns the idle bytes of all pools that an allocation of `bytes` in `pool` cannot use.
    pub(super) fn idle_beside(&mut self, pool: PoolId, bytes: u64) -> Result<u64> {
        let own = self.pool(pool)?.idle.min(bytes);
        Ok(self.idle - own)
    }

    /// Returns the idle bytes of all pools.
    pub(super) fn idle(&self) -> u64 {
        self.idle
    }

    /// Counts an allocation, which uses the idle bytes of its pool first.
    pub(super) fn take(&mut self, id: PoolId, bytes: u64) {
        if let Some(pool) = self.table.get_mut(&id) {
            let idle = pool.idle.min(bytes);
            pool.idle -= idle;
            pool.used += bytes;
            pool.peak = pool.peak.max(pool.used + pool.idle);
            self.idle -= idle;
        }
    }

    /// Counts a free.
    pub(super) fn give(&mut self, id: PoolId, bytes: u64) {
        if let Some(pool) = self.table.get_mut(&id) {
            pool.used = pool.used.saturating_sub(bytes);
            pool.idle += bytes;
            self.idle += bytes;
            self.shrink(id);
        }
    }

    /// Returns idle bytes of a pool, until at most `keep` bytes are reserved.
    pub(super) fn trim(&mut self, id: PoolId, keep: u64) -> Result<PoolMemory> {
        let pool = self.pool(id)?;
        let idle = pool.idle.min(keep.saturating_sub(pool.used));
        let returned = pool.idle - idle;
        pool.idle = idle;
        self.idle -= returned;
        self.memory(id)
    }

    /// Returns the idle bytes of all pools.
    pub(super) fn trim_all(&mut self) {
        self.table.values_mut().for_each(|pool| pool.idle = 0);
        self.idle = 0;
    }

    pub(super) fn memory(&mut self, id: PoolId) -> Result<PoolMemory> {
        let Pool { used, idle, peak, release_threshold } = *self.pool(id)?;
        Ok(PoolMemory { reserved: used + idle, reserved_peak: peak, release_threshold })
    }

    /// Returns the idle bytes beyond the release threshold.
    fn shrink(&mut self, id: PoolId) {
        if let Some(pool) = self.table.get_mut(&id) {
            let idle = pool.idle.min(pool.release_threshold.saturating_sub(pool.used));
            self.idle -= pool.idle - idle;
            pool.idle = idle;
        }
    }

    fn pool(&mut self, id: PoolId) -> Result<&mut Pool> {
        self.table.get_mut(&id).ok_or_else(|| Error::no_such_object("memory pool", id.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PoolId = PoolId(7);

    fn reserved(pools: &mut Pools, id: PoolId) -> u64 {
        pools.memory(id).unwrap().reserved
    }

    #[test]
    fn pool_keeps_freed_bytes_up_to_its_threshold() {
        let mut pools = Pools::default();
        pools.create(A, PoolSpec::new(100));
        pools.take(A, 150);
        pools.give(A, 150);
        assert_eq!((reserved(&mut pools, A), pools.idle()), (100, 100));
        pools.take(A, 30);
        assert_eq!((reserved(&mut pools, A), pools.idle()), (100, 70));
        assert_eq!(pools.idle_beside(A, 50), Ok(20));
        assert_eq!(pools.idle_beside(PoolId::DEFAULT, 50), Ok(70));
        assert_eq!(pools.trim(A, 40).unwrap().reserved, 40);
        pools.change(A, PoolChange::ReleaseThreshold(0)).unwrap();
        assert_eq!((reserved(&mut pools, A), pools.idle()), (30, 0));
        assert_eq!(pools.memory(A).unwrap().reserved_peak, 150);
        pools.change(A, PoolChange::ResetPeak).unwrap();
        assert_eq!(pools.memory(A).unwrap().reserved_peak, 30);
    }

    #[test]
    fn default_pool_keeps_nothing_and_dropped_pools_give_everything_back() {
        let mut pools = Pools::default();
        pools.take(PoolId::DEFAULT, 10);
        pools.give(PoolId::DEFAULT, 10);
        assert_eq!(reserved(&mut pools, PoolId::DEFAULT), 0);
        pools.create(A, PoolSpec::new(u64::MAX));
        pools.take(A, 10);
        pools.give(A, 10);
        assert_eq!(pools.idle(), 10);
        pools.remove(A);
        assert_eq!(pools.idle(), 0);
        assert!(pools.memory(A).is_err());
    }
}
