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

    /// The last submission before the event.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }
}
