//! Allocating in the order of a stream.

use std::sync::Arc;

use super::{allocation::Allocation, stream::Stream};
use crate::protocol::{AllocId, Control, Result, Ticket};

impl Stream {
    /// Allocates memory in the order of this stream. Every stream of the device may use it immediately. The contents
    /// are unspecified. On a stream of a plan, the memory does not exist on the device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or an error of the device.
    pub fn allocate(&self, bytes: u64) -> Result<Arc<Allocation>> {
        if let (Some(home), Some(recorder)) = (self.home(), self.recorder()) {
            return recorder.allocate(|| home.allocate(bytes));
        }
        let device = self.device().clone();
        let core = device.core();
        let (id, charged) = (AllocId(core.next_id()), bytes.max(1));
        if self.is_recording() {
            return Ok(Allocation::planned(device, id, bytes, self.last()));
        }
        core.reclaim_memory();
        core.charge.charge(charged)?;
        let allocate = |at: Ticket| {
            // SAFETY: the control frees, retires, drops and unloads nothing.
            unsafe { core.backend.control(Control::Allocate { id, bytes: charged, at }) }
        };
        // Made only once the backend took the allocation: dropping it frees.
        let ticket = self.submit_control(allocate).inspect_err(|_| core.charge.refund(charged))?;
        Ok(Allocation::new(device, id, bytes, ticket))
    }
}
