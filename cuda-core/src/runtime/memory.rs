//! The memory of a device and of its pools: the charge of allocations, and the tasks that wait for free memory.
//!
//! # Charge
//! The client has its own count of device memory: charged when an allocation is sent, refunded when its free is sent.
//! So it detects out of memory without a round trip. A device has one count, against its quota, and every pool beside
//! the default one has a second one, against its limit.
//!
//! # Pools
//! - The handles of a pool, its streams and its allocations share one [`PoolCore`]. The backend's pool is dropped after
//!   the last of them, so after the frees of all allocations were sent.
//! - `Drop` calls no backend. A dropped pool goes to the queue of the device, as other dropped resources do.
//!
//! # Waiting tasks
//! Tasks wait until device memory may have become free. Wakers are cloned, dropped and woken without the lock. The
//! `Drop` of a buffer wakes no task, because it may run on any thread. The next submission or notice frees the memory
//! and wakes the waiting tasks.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicU64 as Counter},
    },
    task::Waker,
};

use crate::{
    protocol::{Error, Name, PoolId, Result},
    sync::{
        Mutex, WakerSet,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The client's count of the memory of a device or of a pool, with its limit.
pub(crate) struct MemoryCharge {
    quota: u64,
    used: AtomicU64,
    /// The part of `used` that other counts count too: the memory of pools, in the count of a device.
    elsewhere: Counter,
    /// The peak of `used` without `elsewhere`.
    peak: Counter,
}

impl MemoryCharge {
    pub(crate) fn new(quota: u64) -> Self {
        let (used, elsewhere, peak) = (AtomicU64::new(0), Counter::new(0), Counter::new(0));
        Self { quota, used, elsewhere, peak }
    }

    /// Charges an allocation.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if it exceeds what is left of the quota.
    #[inline]
    pub(crate) fn charge(&self, requested: u64) -> Result<()> {
        // A compare-and-swap loop: adding first and undoing it would refuse other allocations that fit.
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let sum = used.checked_add(requested).filter(|sum| *sum <= self.quota);
            let Some(sum) = sum else {
                let free = self.quota - used;
                return Err(Error::OutOfMemory { requested, free, total: self.quota, pool: None });
            };
            match self.used.compare_exchange(used, sum, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => used = now,
            }
        }
    }

    /// Raises the peak to the bytes in use now. Called when a charged allocation was made: one that is refused later is
    /// no use of memory.
    #[inline]
    pub(crate) fn raise_peak(&self) {
        let own = self.own_now();
        if own > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(own, Ordering::Relaxed);
        }
    }

    /// As [`charge`](Self::charge), for an allocation that another count has too.
    pub(crate) fn charge_elsewhere(&self, requested: u64) -> Result<()> {
        self.elsewhere.fetch_add(requested, Ordering::Relaxed);
        let added = self.charge(requested);
        if added.is_err() {
            self.elsewhere.fetch_sub(requested, Ordering::Relaxed);
        }
        added
    }

    /// Gives back the charge of an allocation.
    pub(crate) fn refund(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Gives back a charge of [`charge_elsewhere`](Self::charge_elsewhere).
    pub(crate) fn refund_elsewhere(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.elsewhere.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the limit of this count.
    pub(crate) fn quota(&self) -> u64 {
        self.quota
    }

    /// Returns the bytes in use now, and at the peak, without those that another count has.
    pub(crate) fn own(&self) -> (u64, u64) {
        let used = self.own_now();
        (used, self.peak.load(Ordering::Relaxed).max(used))
    }

    /// Sets the peak to the bytes in use now.
    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.own_now(), Ordering::Relaxed);
    }

    fn own_now(&self) -> u64 {
        // An allocation of a pool counts in `elsewhere` before and in `used` after. So if it comes now, this is not too
        // large.
        let used = self.used.load(Ordering::Relaxed);
        used.saturating_sub(self.elsewhere.load(Ordering::Relaxed))
    }
}

/// The tasks that wait until device memory may have become free.
#[derive(Default)]
pub(crate) struct MemoryWaiters {
    waiting: Mutex<Waiting>,
    /// Whether any task waits. Readable without the lock.
    any: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    wakers: WakerSet<u64>,
    next: u64,
}

impl MemoryWaiters {
    /// Returns whether a task waits for memory.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Wakes all waiting tasks, because memory may have become free.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.has_any() {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        let woken = {
            let mut waiting = self.waiting.lock();
            self.any.store(false, Ordering::Release);
            waiting.wakers.take_all()
        };
        drop(woken);
    }

    /// Enters a waker, in the place of an earlier one with this key. Returns its key.
    pub(crate) fn enter(&self, key: Option<u64>, waker: Waker) -> u64 {
        let mut waiting = self.waiting.lock();
        let key = key.unwrap_or_else(|| {
            waiting.next += 1;
            waiting.next
        });
        let previous = waiting.wakers.insert(key, waker);
        self.any.store(true, Ordering::Release);
        drop(waiting);
        drop(previous);
        key
    }

    pub(crate) fn leave(&self, key: u64) {
        let waker = self.waiting.lock().wakers.remove(&key);
        drop(waker);
    }
}

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
