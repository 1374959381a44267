//! The device as completion uses it: queries streams, enqueues checkpoints, and finds out which ones were passed.

use std::sync::Arc;

use cuda_core::protocol::Error;

use super::{
    inbox::{Checkpoint, Entry, ReportInbox},
    wait_budget::Wakeup,
};
use crate::{
    context::{Bound, Primary},
    driver::host_function,
    streams::{CheckpointEvents, DriverStream, Passed},
};

/// The operations on a device that the completion thread and the reporter use.
pub(crate) trait WatchedDevice {
    /// The error that lost the device.
    fn lost(&self) -> Option<Error>;

    /// Queries a stream. Returns the number up to which the stream is complete, or `None` if work is in flight or the
    /// stream cannot be queried.
    ///
    /// # Errors
    /// The error that lost the device.
    fn status(&self, stream: &DriverStream) -> Result<Option<u64>, Error>;

    /// Finds out whether the stream has passed the checkpoint of the entry. If so, returns the number up to which the
    /// stream is complete. For an entry without a checkpoint, asks the stream's event during a foreign call, and returns
    /// `None` otherwise.
    ///
    /// # Errors
    /// The error that lost the device.
    fn passed(&self, entry: &Entry) -> Result<Option<u64>, Error>;

    /// Enqueues a checkpoint behind everything that was submitted to the stream. Records the next of the stream's
    /// `events` if the checkpoint is an event. Returns `None` if the driver refused it.
    fn checkpoint(
        &self,
        stream: &DriverStream,
        number: u64,
        events: &mut CheckpointEvents,
    ) -> Option<Checkpoint>;
}

/// Returns a function for `streams::Reports`. It enqueues a checkpoint for a number, and puts an entry into the inbox of
/// the completion thread, also if none was enqueued. It returns whether the driver took a checkpoint.
pub(crate) fn enqueue_checkpoint<'a>(
    device: &'a impl WatchedDevice,
    inbox: &'a ReportInbox,
    stream: &'a Arc<DriverStream>,
) -> impl Fn(u64, &mut CheckpointEvents) -> bool + 'a {
    move |number, events| {
        let checkpoint = checkpoint(device, stream, number, events);
        inbox.put(Entry { stream: stream.clone(), number, checkpoint });
        checkpoint.is_some()
    }
}

/// As [`enqueue_checkpoint`], but puts no entry if no checkpoint was enqueued.
pub(crate) fn renew_checkpoint<'a>(
    device: &'a impl WatchedDevice,
    inbox: &'a ReportInbox,
    stream: &'a Arc<DriverStream>,
) -> impl Fn(u64, &mut CheckpointEvents) -> bool + 'a {
    move |number, events| {
        let checkpoint = checkpoint(device, stream, number, events);
        if checkpoint.is_some() {
            inbox.put(Entry { stream: stream.clone(), number, checkpoint });
        }
        checkpoint.is_some()
    }
}

/// Enqueues a checkpoint, but none during a foreign call.
fn checkpoint(
    device: &impl WatchedDevice,
    stream: &DriverStream,
    number: u64,
    events: &mut CheckpointEvents,
) -> Option<Checkpoint> {
    if stream.is_foreign() { None } else { device.checkpoint(stream, number, events) }
}

/// The device on a thread that binds its context.
pub(super) struct BoundDevice<'a> {
    pub(super) primary: &'static Primary,
    pub(super) wakeup: Wakeup,
    pub(super) inbox: &'a Arc<ReportInbox>,
    /// The bound context, or the error of binding it.
    pub(super) bound: Result<&'a Bound, &'a Error>,
}

impl WatchedDevice for BoundDevice<'_> {
    fn lost(&self) -> Option<Error> {
        self.primary.fault().or_else(|| self.bound.err().cloned())
    }

    fn status(&self, stream: &DriverStream) -> Result<Option<u64>, Error> {
        let bound = self.bound.map_err(Error::clone)?;
        // Read before the query: work that is submitted in between may not have run.
        let submitted = stream.submitted();
        Ok(stream.is_idle(self.primary, bound)?.then_some(submitted))
    }

    fn passed(&self, entry: &Entry) -> Result<Option<u64>, Error> {
        let Entry { stream, number, checkpoint } = entry;
        let event = match *checkpoint {
            // A query of the stream shows the same and is faster. On an H200 the measured saving is 0.9 us for a kernel
            // of 100 us.
            Some(Checkpoint::Event(_)) if stream.ends_with(*number) => return self.status(stream),
            Some(Checkpoint::Event(event)) => Some(event),
            Some(Checkpoint::HostFunction) if stream.completed() >= *number => {
                // If the stream cannot be queried, the known number is reported.
                let idle = self.status(stream)?.unwrap_or(0);
                return Ok(Some(idle.max(stream.completed())));
            }
            // The stream's event was recorded before the foreign call. After the call it may be recorded again, for
            // later work.
            None if stream.is_foreign() => stream.recorded_after(*number),
            Some(Checkpoint::HostFunction) | None => None,
        };
        let Some(event) = event else { return Ok(None) };
        Ok(stream.has_passed(event, self.primary)?.then_some(*number))
    }

    fn checkpoint(
        &self,
        stream: &DriverStream,
        number: u64,
        events: &mut CheckpointEvents,
    ) -> Option<Checkpoint> {
        let primary = self.primary;
        let bound = self.bound.ok()?;
        // A fault is marked at the device, and the completion thread reports it.
        match self.wakeup {
            Wakeup::Polled(_) => {
                events.record(stream.raw, number, primary, bound).ok().map(Checkpoint::Event)
            }
            Wakeup::Signaled => {
                let (inbox, passed) = (Arc::clone(self.inbox), stream.passed.clone());
                let pass = move || pass(&inbox, &passed, number);
                // SAFETY: the caller holds the stream, and the context is bound; `pass` keeps rule 8.
                unsafe { host_function::enqueue(primary.api, stream.raw, pass) }
                    .map_err(|failed| primary.error(failed))
                    .ok()
                    .map(|()| Checkpoint::HostFunction)
            }
        }
    }
}

/// The host function of a checkpoint: stores the number that the stream has passed, and wakes the completion thread.
pub(crate) fn pass(inbox: &ReportInbox, passed: &Passed, number: u64) {
    passed.raise(number);
    inbox.wake();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn host_function_stores_the_number_and_wakes_the_thread() {
        let (inbox, passed) = <(ReportInbox, Passed)>::default();
        pass(&inbox, &passed, 7);
        inbox.wait(None);
        assert_eq!(passed.load(), 7);
    }
}
