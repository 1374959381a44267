//! The memory pools of a session.
//!
//! The quota of the lease counts the bytes in use, in all pools. Pools also keep freed memory. The node's driver reserves
//! at most the peak of a pool's bytes in use, so the sum of the peaks stays within the quota too: before it would exceed
//! it, the other pools are trimmed, and their peaks begin again.

use std::sync::{Arc, atomic::AtomicUsize};

use cuda_core::protocol::{AllocId, PoolId};
use cuda_lease::{session::SessionError, wire::features::MAX_POOLS};
use rustc_hash::FxHashMap;

/// The maximum number of pools that exist: those of the client, and dropped ones whose last frees are held.
const POOL_LIMIT: usize = 1024;

pub(super) struct Pools {
    table: FxHashMap<PoolId, Pool>,
    /// The pools of allocations that exist or will be made, without those of the default pool.
    of: FxHashMap<AllocId, PoolId>,
    /// The number of queries that wait.
    pub(super) asked: Arc<AtomicUsize>,
}

#[derive(Default)]
pub(super) struct Pool {
    /// The allocations that exist or will be made.
    live: usize,
    used: u64,
    /// The peak of `used` since the last trim.
    peak: u64,
    is_dropped: bool,
}

impl Default for Pools {
    fn default() -> Self {
        let table = FxHashMap::from_iter([(PoolId::DEFAULT, Pool::default())]);
        Self { table, of: FxHashMap::default(), asked: Arc::default() }
    }
}

/// The error for a command that breaks the rules of pools.
fn refused(message: impl Into<String>) -> SessionError {
    SessionError::Command(message.into())
}

impl Pools {
    pub(super) fn create(&mut self, id: PoolId) -> Result<(), SessionError> {
        let own =
            self.table.iter().filter(|(id, pool)| **id != PoolId::DEFAULT && !pool.is_dropped);
        if own.count() >= MAX_POOLS as usize || self.table.len() > POOL_LIMIT {
            return Err(refused(format!(
                "more than {MAX_POOLS} memory pools exist, or more than {POOL_LIMIT} with dropped ones whose memory is \
                 not freed"
            )));
        }
        if self.table.contains_key(&id) {
            return Err(refused(format!("the id of memory pool {} is already in use", id.0)));
        }
        self.table.insert(id, Pool::default());
        Ok(())
    }

    pub(super) fn find(&mut self, id: PoolId) -> Result<&mut Pool, SessionError> {
        let pool = self.table.get_mut(&id).filter(|pool| !pool.is_dropped);
        pool.ok_or_else(|| refused(format!("memory pool {} does not exist", id.0)))
    }

    /// Records an allocation that will be made.
    ///
    /// # Errors
    /// The pool does not exist.
    pub(super) fn announce(&mut self, id: PoolId, alloc: AllocId) -> Result<(), SessionError> {
        if id != PoolId::DEFAULT {
            self.find(id)?.live += 1;
            self.of.insert(alloc, id);
        }
        Ok(())
    }

    /// Records that an allocation was made. Returns the other pools that have to be trimmed, so that at most `quota`
    /// bytes are reserved.
    pub(super) fn made(&mut self, id: PoolId, bytes: u64, quota: u64) -> Vec<PoolId> {
        let Some(pool) = self.table.get_mut(&id) else { return Vec::new() };
        pool.used += bytes;
        pool.peak = pool.peak.max(pool.used);
        if self.table.len() == 1 || self.table.values().map(|pool| pool.peak).sum::<u64>() <= quota
        {
            return Vec::new();
        }
        let others =
            self.table.iter_mut().filter(|(other, pool)| **other != id && pool.peak > pool.used);
        let trimmed = others.map(|(other, pool)| {
            pool.peak = pool.used;
            *other
        });
        trimmed.collect()
    }

    /// Records that an allocation was not made after all.
    pub(super) fn not_made(&mut self, id: PoolId, bytes: u64) {
        if let Some(pool) = self.table.get_mut(&id) {
            pool.used = pool.used.saturating_sub(bytes);
        }
    }

    /// Records that an allocation was freed, which had `bytes` bytes. Returns its pool if that was dropped and has no
    /// other allocation.
    pub(super) fn freed(&mut self, alloc: AllocId, bytes: u64) -> Option<PoolId> {
        let id = self.of.remove(&alloc).unwrap_or(PoolId::DEFAULT);
        let pool = self.table.get_mut(&id)?;
        pool.used = pool.used.saturating_sub(bytes);
        pool.live = pool.live.saturating_sub(1);
        self.end(id)
    }

    /// Records that a pool is dropped. Returns it if it has no allocation.
    pub(super) fn drop(&mut self, id: PoolId) -> Result<Option<PoolId>, SessionError> {
        if id == PoolId::DEFAULT {
            return Err(refused("the default memory pool cannot be dropped"));
        }
        self.find(id)?.is_dropped = true;
        Ok(self.end(id))
    }

    fn end(&mut self, id: PoolId) -> Option<PoolId> {
        let ends = self.table.get(&id).is_some_and(|pool| pool.is_dropped && pool.live == 0);
        ends.then(|| self.table.remove(&id)).flatten().map(|_| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PoolId = PoolId(2);

    #[test]
    fn client_has_at_most_the_limit_of_pools() {
        let mut pools = Pools::default();
        let ids = || (2..2 + u64::from(MAX_POOLS)).map(PoolId);
        ids().for_each(|id| pools.create(id).unwrap());
        assert!(pools.create(PoolId(1000)).is_err());
        assert_eq!(pools.drop(A).unwrap(), Some(A));
        assert!(pools.drop(A).is_err() && pools.announce(A, AllocId(1)).is_err());
        pools.create(PoolId(1000)).unwrap();
        assert!(pools.create(PoolId(3)).is_err() && pools.drop(PoolId::DEFAULT).is_err());
    }

    #[test]
    fn dropped_pool_ends_with_its_last_allocation() {
        let mut pools = Pools::default();
        pools.create(A).unwrap();
        pools.announce(A, AllocId(1)).unwrap();
        pools.announce(A, AllocId(2)).unwrap();
        assert_eq!(pools.drop(A).unwrap(), None);
        // One was never made.
        assert_eq!((pools.freed(AllocId(1), 0), pools.freed(AllocId(2), 5)), (None, Some(A)));
    }

    #[test]
    fn sum_of_the_peaks_stays_within_the_quota() {
        let mut pools = Pools::default();
        pools.create(A).unwrap();
        pools.announce(A, AllocId(1)).unwrap();
        assert!(pools.made(A, 70, 100).is_empty());
        pools.freed(AllocId(1), 70);
        assert!(pools.made(PoolId::DEFAULT, 30, 100).is_empty());
        assert_eq!(pools.made(PoolId::DEFAULT, 1, 100), [A]);
        assert!(pools.made(PoolId::DEFAULT, 69, 100).is_empty());
    }
}
