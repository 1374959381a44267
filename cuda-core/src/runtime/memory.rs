//! The memory of a device: its pools, the charge of allocations, and memory that is recovered.
//!
//! # Charge
//! The client has its own count of device memory: charged when an allocation is sent, refunded when its free is sent. So
//! it detects out of memory without a round trip. A device has one count, against its quota, and every pool beside the default one has a second one, against its limit.
//!
//! # Waiting tasks
//! Tasks wait until device memory may have become free. Wakers are cloned, dropped and woken without the lock. The `Drop` of a buffer wakes no task, because it may run on
//! any thread. The next submission or notice frees the memory and wakes the waiting tasks.
//!
//! # Pools
//! Every device has a default pool, and may have others.
//!
//! - The handles of a pool, its streams and its allocations share one [`PoolCore`]. The backend's pool is dropped after
//!   the last of them, so after the frees of all allocations were sent.
//! - `Drop` calls no backend. A dropped pool goes to the queue of the device, as other dropped resources do.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicU64 as Counter},
    },
    task::Waker,
};

use crate::{
    protocol::{Control, Error, Name, PoolId, PoolSpec, Result},
    runtime::device_core::DeviceCore,
    sync::{
        Mutex, WakerSet,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

impl DeviceCore {
    /// Creates a pool. `limit` is the maximum number of bytes in use.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without pools, [`Error::OutOfRange`] beyond the maximum number of pools, or an error of
    /// the backend.
    pub(crate) fn create_pool(
        self: &Arc<Self>,
        name: Option<Name>,
        limit: u64,
        spec: PoolSpec,
    ) -> Result<Arc<PoolCore>> {
        let most = self.capabilities.pools;
        if most == 0 {
            let what = "a memory pool beside the default one";
            return Err(Error::unsupported(what, &self.backend.info().address));
        }
        if !self.pools.add(most) {
            // Pools may have been dropped meanwhile.
            self.reclaim_all();
            if !self.pools.add(most) {
                let address = &self.backend.info().address;
                let detail = format!("`{address}` has {most} pools, which is the limit; drop one");
                return Err(Error::OutOfRange { what: "a memory pool".into(), detail });
            }
        }
        let id = PoolId(self.next_id());
        // SAFETY: the control frees, retires, drops and unloads nothing.
        let created = unsafe { self.backend.control(Control::CreatePool { id, spec }) };
        created.inspect_err(|_| self.pools.remove())?;
        let name = name.unwrap_or_else(|| format!("pool {}", id.0).into());
        let device: Weak<dyn DropsPools> = Arc::<Self>::downgrade(self);
        let is_managed = spec.is_managed && self.capabilities.managed_pools;
        Ok(PoolCore::new(id, name, limit, is_managed, device))
    }

    /// Charges an allocation: against the quota of the device, and against the limit of the pool.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    #[inline]
    pub(crate) fn charge(&self, pool: Option<&PoolCore>, bytes: u64) -> Result<()> {
        match pool {
            None => self.charge.charge(bytes),
            Some(pool) => {
                pool.charge(bytes)?;
                if pool.is_managed {
                    return Ok(());
                }
                let charged = self.charge.charge_elsewhere(bytes);
                charged.inspect_err(|_| pool.charge.refund(bytes))
            }
        }
    }

    /// Counts an allocation that was charged and made in the peak.
    #[inline]
    pub(crate) fn raise_peak(&self, pool: Option<&PoolCore>) {
        pool.map_or(&self.charge, |pool| &pool.charge).raise_peak();
    }

    /// Gives back the charge of an allocation.
    pub(crate) fn refund(&self, pool: Option<&PoolCore>, bytes: u64) {
        match pool {
            None => self.charge.refund(bytes),
            Some(pool) => {
                if !pool.is_managed {
                    self.charge.refund_elsewhere(bytes);
                }
                pool.charge.refund(bytes);
            }
        }
    }

    /// Frees the memory that this client still holds for no good reason: buffers whose last use is complete and not
    /// known to be, and dropped buffers. Waits for frees that another thread is making, but not longer than `MAX_FREEING`.
    #[cold]
    pub(crate) fn recover_memory(&self) {
        for stream in self.streams.all() {
            if stream.is_busy() {
                // A lost device shows in the next try.
                let _ = self.query(&stream);
            }
        }
        self.reclaim_all();
        self.wait_for_frees();
    }
}

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

    /// Raises the peak to the bytes in use now. Called when a charged allocation was made: one that is refused later is no
    /// use of memory.
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
        // An allocation of a pool counts in `elsewhere` before and in `used` after. So if it comes now, this is not too large.
        let used = self.used.load(Ordering::Relaxed);
        used.saturating_sub(self.elsewhere.load(Ordering::Relaxed))
    }
}

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

#[cfg(all(test, not(loom)))]
mod memory_charge_tests {
    use super::*;

    #[test]
    fn charge_beyond_the_quota_is_refused_and_not_counted() {
        let charge = MemoryCharge::new(100);
        charge.charge(60).unwrap();
        let refused = Error::OutOfMemory { requested: 41, free: 40, total: 100, pool: None };
        assert_eq!(charge.charge(41), Err(refused));
        assert!(charge.charge(u64::MAX).is_err());
        charge.charge(40).unwrap();
        charge.refund(60);
        charge.charge(60).unwrap();
        assert_eq!(charge.used.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn memory_of_pools_counts_against_the_quota_and_not_as_own() {
        let charge = MemoryCharge::new(100);
        charge.charge(10).unwrap();
        charge.charge_elsewhere(70).unwrap();
        assert!(charge.charge(21).is_err() && charge.charge_elsewhere(21).is_err());
        assert_eq!(charge.own(), (10, 10));
        charge.charge(20).unwrap();
        charge.raise_peak();
        charge.refund(25);
        charge.refund_elsewhere(70);
        assert_eq!(charge.own(), (5, 30));
        charge.reset_peak();
        assert_eq!(charge.own(), (5, 5));
    }
}
