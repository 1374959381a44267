//! The memory pools of a device, beside the default one, which every device has.
//!
//! # Rules
//! - The handles of a pool, its streams and its allocations share one [`PoolCore`]. The backend's pool is dropped after
//!   the last of them, so after the frees of all allocations were sent.
//! - `Drop` calls no backend. A dropped pool goes to the queue of the device, as other dropped resources do.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU32, Ordering},
};

use super::memory::MemoryCharge;
use crate::protocol::{Error, Name, PoolId, Result};

/// A pool of the backend, and the count of its memory.
pub(crate) struct PoolCore {
    pub(crate) id: PoolId,
    pub(crate) name: Name,
    pub(crate) charge: MemoryCharge,
    /// Whether the memory is managed. It may be on the host, so it does not count for the device.
    pub(super) is_managed: bool,
    device: Weak<dyn DropsPools>,
}

/// The part of a device that takes dropped pools.
pub(crate) trait DropsPools: Send + Sync {
    /// Queues a pool to be dropped. The frees of its allocations were sent.
    fn retire_pool(&self, id: PoolId);
}

/// The number of pools of a device.
#[derive(Default)]
pub(crate) struct PoolCount(AtomicU32);

impl PoolCount {
    /// Counts one more pool, if there are less than `limit`.
    pub(super) fn add(&self, limit: u32) -> bool {
        let add = |count: u32| (count < limit).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Counts one pool less.
    pub(super) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PoolCore {
    pub(super) fn new(
        id: PoolId,
        name: Name,
        limit: u64,
        is_managed: bool,
        device: Weak<dyn DropsPools>,
    ) -> Arc<Self> {
        Arc::new(Self { id, name, charge: MemoryCharge::new(limit), is_managed, device })
    }

    /// Charges an allocation against the limit of the pool.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the name of the pool.
    pub(super) fn charge(&self, bytes: u64) -> Result<()> {
        self.charge.charge(bytes).map_err(|error| match error {
            Error::OutOfMemory { requested, free, total, .. } => {
                Error::OutOfMemory { requested, free, total, pool: Some(self.name.clone()) }
            }
            other => other,
        })
    }
}

impl Drop for PoolCore {
    fn drop(&mut self) {
        // A device that is gone has dropped its pools.
        if let Some(device) = self.device.upgrade() {
            device.retire_pool(self.id);
        }
    }
}
