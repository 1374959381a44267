//! Allocating in the order of a stream.

use std::sync::Arc;

use super::{allocation::Allocation, stream::Stream};
use crate::{
    protocol::{AllocId, Control, Error, Result, Ticket},
    runtime::PoolCore,
};

impl Stream {
    /// Allocates memory in the order of this stream, from the pool of this handle. Every stream of the device may use it
    /// immediately. The contents are unspecified. On a stream of a plan, the memory does not exist on the device.
    ///
    /// If there is too little memory, this reclaims dropped buffers and tries once more. The device also returns the
    /// free memory of all pools to the system then, which takes a GPU about two milliseconds.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let allocation = stream.allocate(4096)?; // bytes; `DeviceBuffer` has a type
    /// assert_eq!(allocation.bytes(), 4096);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or an error of the device.
    pub fn allocate(&self, bytes: u64) -> Result<Arc<Allocation>> {
        self.allocate_from(self.pool()?, bytes)
    }

    /// As [`allocate`](Self::allocate), from a pool of the device. `None` is the default pool.
    pub(crate) fn allocate_from(
        &self,
        pool: Option<&Arc<PoolCore>>,
        bytes: u64,
    ) -> Result<Arc<Allocation>> {
        if let (Some(home), Some(recorder)) = (self.home(), self.recorder()) {
            return recorder.allocate(|| home.allocate_from(pool, bytes));
        }
        let core = self.device().core();
        if self.is_recording() {
            let id = AllocId(core.next_id());
            return Ok(Allocation::planned(self.device().clone(), id, bytes, self.last()));
        }
        if let Some(id) = core.take_dropped(pool, bytes, self.id()) {
            return Ok(self.reuse(id, pool, bytes));
        }
        core.reclaim_memory();
        match self.try_to_allocate(pool, bytes) {
            // A request beyond the total never succeeds.
            Err(Error::OutOfMemory { requested, total, .. }) if requested <= total => {
                core.recover_memory();
                self.try_to_allocate(pool, bytes)
            }
            other => other,
        }
    }

    /// Makes an allocation from dropped memory whose uses are complete or on this stream. This saves a free, an
    /// allocation and their time on the stream. Work on the allocation comes after everything that this stream has
    /// submitted so far.
    fn reuse(&self, id: AllocId, pool: Option<&Arc<PoolCore>>, bytes: u64) -> Arc<Allocation> {
        // This ticket covers every use on this stream: each was published before its handle was dropped.
        let last = Ticket { stream: self.id(), number: self.submitted() };
        if last.number > self.sent.last() && last.number > self.progress().completed() {
            // As after an allocation, a wait for this handle covers it.
            let _order = self.timeline().order.lock();
            self.sent.count_up_to(last.number);
        }
        Allocation::new(self.device().clone(), id, bytes, last, pool.cloned())
    }

    #[inline]
    fn try_to_allocate(&self, pool: Option<&Arc<PoolCore>>, bytes: u64) -> Result<Arc<Allocation>> {
        let device = self.device().clone();
        let core = device.core();
        let id = AllocId(core.next_id());
        let counted = pool.map(|pool| &**pool);
        core.charge(counted, bytes)?;
        let allocate = |at: Ticket| {
            let control = match counted {
                None => Control::Allocate { id, bytes, at },
                Some(pool) => Control::AllocateIn { pool: pool.id, id, bytes, at },
            };
            // SAFETY: the control frees, retires, drops and unloads nothing.
            unsafe { core.backend.control(control) }
        };
        // Made only once the backend took the allocation: dropping it frees.
        let ticket =
            self.ordered().control(allocate).inspect_err(|_| core.refund(counted, bytes))?;
        core.raise_peak(counted);
        Ok(Allocation::new(device, id, bytes, ticket, pool.cloned()))
    }
}
