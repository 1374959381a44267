//! The device, as completion uses it: reads the status of a stream, enqueues checkpoints, and looks at them.

use std::sync::Arc;

use super::{
    host_function,
    inbox::{Checkpoint, Entry, ReportInbox},
    wait_budget::Wakeup,
};
use crate::{
    cuda::{
        context::{Bound, Primary},
        driver::status::{self, Failed},
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

    /// Enqueues a checkpoint behind everything that the stream has accepted. Returns nothing if the driver refused it.
    fn checkpoint(&self, stream: &DriverStream, number: u64) -> Option<Checkpoint>;

    /// Finds out whether the stream has passed the checkpoint of the entry, and stores that in the stream.
    fn look(&self, entry: &Entry);
}

/// Enqueues a checkpoint, and puts the entry for it into the inbox of the completion thread. Returns whether the driver
/// took the checkpoint. While foreign code runs on the stream, none is enqueued.
pub(crate) fn enqueue_checkpoint(
    device: &impl WatchedDevice,
    inbox: &ReportInbox,
    stream: &Arc<DriverStream>,
    value: u64,
) -> bool {
    let checkpoint = if stream.is_foreign() { None } else { device.checkpoint(stream, value) };
    inbox.put(Entry { stream: stream.clone(), number: value, checkpoint });
    checkpoint.is_some()
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

    fn checkpoint(&self, stream: &DriverStream, number: u64) -> Option<Checkpoint> {
        let primary = self.primary;
        let bound = self.bound.ok()?;
        match self.wakeup {
            Wakeup::Polled(_) => {
                stream.record_checkpoint(primary, bound).ok().map(Checkpoint::Event)
            }
            Wakeup::Signalled => {
                let taken = host_function::enqueue(primary.api, stream, number, self.inbox);
                // A fault is marked at the device, and the completion thread reports it.
                taken
                    .map_err(|failed| primary.error(failed))
                    .ok()
                    .map(|()| Checkpoint::HostFunction)
            }
        }
    }

    fn look(&self, entry: &Entry) {
        let (stream, Some(Checkpoint::Event(event))) = (&entry.stream, entry.checkpoint) else {
            return;
        };
        // While nothing was enqueued behind the event, a query of the stream shows the same. Measured once, a kernel of
        // 100 us woke its task a microsecond earlier so.
        let is_last = stream.accepted() == entry.number;
        let status = if is_last { stream.unless_lent(|| self.status(stream)) } else { None };
        // An error is marked at the device, and the completion thread reports it.
        let passed = match status {
            Some(status) => status.ok().flatten(),
            // SAFETY: the entry holds the stream, which owns the event.
            None => match unsafe { self.primary.api.event_query(event) } {
                Ok(()) => Some(entry.number),
                Err(Failed { code: status::NOT_READY, .. }) => None,
                Err(failed) => {
                    _ = self.primary.state_error(failed);
                    None
                }
            },
        };
        if let Some(number) = passed {
            stream.passed.raise(number);
        }
    }
}
