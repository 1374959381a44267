//! Events: points in streams.

use crate::{handle::device::Device, protocol::Ticket};

/// A point of a stream that other streams can be ordered after.
///
/// Made by [`Stream::record`](super::Stream::record), used by [`Stream::wait_event`](super::Stream::wait_event). It is
/// a ticket: recording one calls no driver.
#[derive(Debug, Clone)]
pub struct Event {
    device: Device,
    ticket: Ticket,
}

impl Event {
    pub(super) fn new(device: Device, ticket: Ticket) -> Self {
        Self { device, ticket }
    }

    /// Returns the ticket of the last submission before the event.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns the device of the event.
    pub fn device(&self) -> &Device {
        &self.device
    }
}
