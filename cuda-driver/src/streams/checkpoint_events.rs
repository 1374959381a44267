//! `CheckpointEvents`: the events of a stream's checkpoints, recorded in turn.

use arrayvec::ArrayVec;
use cuda_core::{internals::sync::limit, protocol::Result};

use super::event::new_event;
use crate::{
    context::{Bound, Primary},
    driver::api::{EventHandle, StreamHandle},
};

/// The number of checkpoints that a stream may have in flight, each with an event of its own. Further callers share the
/// next checkpoint, so they also wait for later submissions.
pub(crate) const MAX_CHECKPOINTS: u32 = limit(4, 1) as u32;

/// The events of a stream's checkpoints, recorded in turn. There are as many as a stream may have checkpoints in
/// flight, so an event is recorded again only after its last checkpoint was passed. Each is created at its first use.
#[derive(Default)]
pub(crate) struct CheckpointEvents {
    events: ArrayVec<EventHandle, { MAX_CHECKPOINTS as usize }>,
    /// The number of each event's last checkpoint.
    numbers: [u64; MAX_CHECKPOINTS as usize],
    next: usize,
}

impl CheckpointEvents {
    /// Records the next event behind everything that was enqueued on `stream`, which owns the events, as the checkpoint
    /// for `number`.
    ///
    /// # Errors
    /// The driver's error. The next call uses the same event.
    pub(crate) fn record(
        &mut self,
        stream: StreamHandle,
        number: u64,
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
        unsafe { primary.api.event_record(event, stream) }
            .map_err(|failed| primary.error(failed))?;
        self.numbers[self.next] = number;
        self.next = (self.next + 1) % MAX_CHECKPOINTS as usize;
        Ok(event)
    }

    /// The event of the earliest checkpoint that covers `number`.
    pub(super) fn event_for(&self, number: u64) -> Option<EventHandle> {
        let covering =
            self.numbers.iter().zip(&self.events).filter(|(recorded, _)| **recorded >= number);
        covering.min_by_key(|(recorded, _)| **recorded).map(|(_, event)| *event)
    }

    /// Takes out the events, of a stream that was dropped.
    pub(super) fn take(&mut self) -> impl Iterator<Item = EventHandle> {
        std::mem::take(&mut self.events).into_iter()
    }
}
