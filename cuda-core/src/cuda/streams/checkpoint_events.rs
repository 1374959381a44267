//! `CheckpointEvents`: the events of a stream's checkpoints, recorded in turn.

use arrayvec::ArrayVec;

use super::{DriverStream, new_event, reports::MAX_CHECKPOINTS};
use crate::{
    cuda::{
        context::{Bound, Primary},
        driver::api::EventHandle,
    },
    protocol::Result,
};

/// The events of a stream's checkpoints, recorded in turn. There are as many as a stream may have checkpoints in
/// flight, so an event is recorded again only after its last checkpoint was passed. Each is created at its first use.
#[derive(Default)]
pub(crate) struct CheckpointEvents {
    events: ArrayVec<EventHandle, { MAX_CHECKPOINTS as usize }>,
    next: usize,
}

impl CheckpointEvents {
    /// Records the next event behind everything that was enqueued on `stream`, which owns the events.
    ///
    /// # Errors
    /// The driver's error. The next call uses the same event.
    pub(crate) fn record(
        &mut self,
        stream: &DriverStream,
        primary: &Primary,
        bound: &Bound,
    ) -> Result<EventHandle> {
        let event = match self.events.get(self.next) {
            Some(event) => *event,
            None => {
                let event = new_event(primary, bound)?;
                self.events.push(event);
                event
            }
        };
        // SAFETY: the caller holds the stream, which owns the event (rules 3 and 5).
        unsafe { primary.api.event_record(event, stream.raw) }
            .map_err(|failed| primary.error(failed))?;
        self.next = (self.next + 1) % MAX_CHECKPOINTS as usize;
        Ok(event)
    }

    /// Takes out the events, of a stream that was dropped.
    pub(super) fn take(&mut self) -> impl Iterator<Item = EventHandle> {
        std::mem::take(&mut self.events).into_iter()
    }
}
