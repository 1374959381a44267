//! The device, as completion uses it: reads the status of a stream, and enqueues the write of its word.

use std::sync::Arc;

use super::{
    host_function,
    inbox::{Entry, ReportInbox},
    wait_budget::Wakeup,
};
use crate::{
    cuda::{
        context::{Bound, Primary},
        streams::{DriverStream, StreamStatus},
    },
    protocol::Error,
};

/// The device, as the completion thread and the callers of the reporter use it.
pub(crate) trait WatchedDevice {
    /// The error that lost the device.
    fn lost(&self) -> Option<Error>;

    /// Reads the status of a stream. Returns the number up to which that shows it to be complete, or nothing if work is
    /// in flight or the stream cannot be queried.
    ///
    /// # Errors
    /// The error that lost the device.
    fn status(&self, stream: &DriverStream) -> Result<Option<u64>, Error>;

    /// Enqueues a write of the stream's word. Returns whether the driver took the write.
    fn write_word(&self, stream: &DriverStream, value: u64) -> bool;
}

/// Enqueues a write of the stream's word, and puts the entry for it into the inbox of the completion thread. Returns
/// whether the driver took the write. While foreign code runs on the stream, no write is enqueued.
pub(crate) fn enqueue_write(
    device: &impl WatchedDevice,
    inbox: &ReportInbox,
    stream: &Arc<DriverStream>,
    value: u64,
) -> bool {
    let written = !stream.is_foreign() && device.write_word(stream, value);
    inbox.put(Entry { stream: stream.clone(), number: value, written });
    written
}

/// The device on a thread that has bound its context.
pub(super) struct BoundDevice<'a> {
    pub(super) primary: &'static Primary,
    pub(super) wakeup: Wakeup,
    pub(super) inbox: &'a Arc<ReportInbox>,
    /// The error of binding the context, if that failed.
    pub(super) bound: Result<&'a Bound, &'a Error>,
}

impl WatchedDevice for BoundDevice<'_> {
    fn lost(&self) -> Option<Error> {
        self.primary.fault().or_else(|| self.bound.err().cloned())
    }

    fn status(&self, stream: &DriverStream) -> Result<Option<u64>, Error> {
        let bound = self.bound.map_err(Error::clone)?;
        // Read before the query: work that is submitted in between may not have run.
        let accepted = stream.accepted();
        let status = stream.status(self.primary, bound)?;
        Ok((status == StreamStatus::Idle).then_some(accepted))
    }

    fn write_word(&self, stream: &DriverStream, value: u64) -> bool {
        let (primary, word) = (self.primary, stream.word);
        if self.bound.is_err() {
            return false;
        }
        let taken = match self.wakeup {
            // SAFETY: the caller holds the stream; the word's memory is never freed (rule 8).
            Wakeup::Polled(_) => unsafe {
                primary.api.write_word(stream.raw, word.address(), value, 0)
            },
            Wakeup::Signalled => host_function::enqueue(primary.api, stream, value, self.inbox),
        };
        // A fault is marked at the device, and the completion thread reports it.
        taken.map_err(|failed| primary.error(failed)).is_ok()
    }
}
