//! The memory of a device: its pools, the charge of allocations, and memory that is recovered.

use std::sync::{Arc, Weak};

use super::{
    device_core::DeviceCore,
    pools::{DropsPools, PoolCore},
};
use crate::protocol::{Control, Error, Name, PoolId, PoolSpec, Result};

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
