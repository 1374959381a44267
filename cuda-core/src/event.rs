//! Marks in streams.

use crate::{Command, Device, EventId, Result, hazard::Ticket};

/// A point of a stream that other streams can be ordered after.
///
/// Made by [`Stream::record`](crate::Stream::record), used by
/// [`Stream::wait_event`](crate::Stream::wait_event).
#[derive(Debug)]
pub struct Event {
    device: Device,
    id: EventId,
    ticket: Ticket,
}

impl Event {
    /// Records on the stream of `covers`, whose number was read before: the mark is at it or behind it.
    pub(crate) fn record(device: &Device, covers: Ticket) -> Result<Self> {
        let id = device.inner().events.take();
        let event = Self { device: device.clone(), id, ticket: covers };
        // SAFETY: touches no memory.
        unsafe { device.backend().enqueue(covers.stream, Command::Record { event: id }, &[]) }?;
        Ok(event)
    }

    /// The submission it marks.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn id(&self) -> EventId {
        self.id
    }
}

impl Drop for Event {
    /// Its name can be recorded again at once: a wait holds for the record it saw.
    fn drop(&mut self) {
        self.device.inner().events.give(self.id);
    }
}
