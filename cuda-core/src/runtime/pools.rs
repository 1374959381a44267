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

use super::{device_core::DeviceCore, memory_charge::MemoryCharge};
use crate::protocol::{Control, Error, Name, PoolId, PoolSpec, Result};

/// A pool of the backend, and the count of its memory.
pub(crate) struct PoolCore {
    pub(crate) id: PoolId,
    pub(crate) name: Name,
    pub(crate) charge: MemoryCharge,
    device: Weak<DeviceCore>,
}

/// The number of pools of a device.
#[derive(Default)]
pub(crate) struct PoolCount(AtomicU32);

impl PoolCount {
    /// Counts one more pool, if there are less than `limit`.
    fn add(&self, limit: u32) -> bool {
        let add = |count: u32| (count < limit).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Counts one pool less.
    pub(super) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

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
        let (charge, device) = (MemoryCharge::new(limit), Arc::downgrade(self));
        Ok(Arc::new(PoolCore { id, name, charge, device }))
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
                let charged = self.charge.charge_elsewhere(bytes);
                charged.inspect_err(|_| pool.charge.refund(bytes))
            }
        }
    }

    /// Gives back the charge of an allocation.
    pub(crate) fn refund(&self, pool: Option<&PoolCore>, bytes: u64) {
        match pool {
            None => self.charge.refund(bytes),
            Some(pool) => {
                self.charge.refund_elsewhere(bytes);
                pool.charge.refund(bytes);
            }
        }
    }

    /// Frees the memory that this client still holds for no good reason: buffers whose last use is complete and not
    /// known to be, and dropped buffers. Never blocks.
    #[cold]
    pub(crate) fn recover_memory(&self) {
        for stream in self.streams.all() {
            if stream.is_busy() {
                // A lost device shows in the next try.
                let _ = self.query(&stream);
            }
        }
        self.reclaim_all();
    }
}

impl PoolCore {
    fn charge(&self, bytes: u64) -> Result<()> {
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
