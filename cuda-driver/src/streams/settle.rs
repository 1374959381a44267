//! Makes the driver notice the frees of a stream that have run.

use super::{DriverStream, new_event};
use crate::context::{Bound, Primary};

impl DriverStream {
    /// Synchronizes with the frees of this stream if everything on it has run, so that a trim of their pool returns
    /// their memory: after a query alone the driver does not know of them. Never waits for the device. Does nothing
    /// during a foreign call, and ignores errors, which later calls meet again.
    #[cold]
    pub(crate) fn settle_frees(&self, primary: &Primary, bound: &Bound) {
        let Ok(event) = new_event(primary, bound) else { return };
        // SAFETY: the caller holds the stream, and the event is owned here.
        let record = || unsafe { primary.api.event_record(event, self.raw) }.is_ok();
        if self.unless_foreign(record) == Some(true)
            // SAFETY: the event is owned here.
            && unsafe { primary.api.event_query(event) }.is_ok()
        {
            // The event was reached, so this returns at once.
            // SAFETY: the event is owned here.
            _ = unsafe { primary.api.event_synchronize(event) };
        }
        // SAFETY: the event is owned here. The driver destroys it when it was reached.
        _ = unsafe { primary.api.event_destroy(event) };
    }
}
