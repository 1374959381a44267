//! From device to device.
//!
//! # Rules
//! Tickets order the work of one device, not of two. So a destination is handed over for the copy: whoever starts
//! one gives up the buffer, which has nothing left to run on its own device, and gets it back from a [`Crossing`]
//! when the source's stream is known to have passed the copy. Until then that stream keeps the memory alive,
//! so dropping or forgetting a `Crossing` is fine.

use parking_lot::Mutex;

use crate::{
    Command, Device, DeviceBuffer, Element, Error, Reply, Request, Result, Stream,
    device::unexpected,
    hazard::{Access, Ticket},
    retained::Kept,
};

/// Which other devices a device can copy to, by address, as far as that was asked.
#[derive(Default)]
pub(crate) struct Peers(Mutex<Vec<(String, bool)>>);

impl Device {
    /// Whether this device is known to be able to copy to the other one's memory; none before
    /// [`reach`](Device::reach) was called. Asks nobody.
    pub fn known_to_reach(&self, other: &Device) -> Option<bool> {
        let peers = self.inner().peers.0.lock();
        let known = peers.iter().find(|(address, _)| *address == other.info().address);
        known.map(|(_, reached)| *reached)
    }

    /// Makes it possible for this device to copy to the other one's memory, if that can be had. Blocks the first
    /// time: a driver may take some milliseconds.
    ///
    /// # Errors
    /// What the backend says, but for [`Error::Unsupported`], which is a `false`.
    pub fn reach(&self, other: &Device) -> Result<bool> {
        if let Some(known) = self.known_to_reach(other) {
            return Ok(known);
        }
        let address = other.info().address.clone();
        let request = Request::ReachPeer { address: address.clone() };
        let reached = match self.backend().request(request) {
            Ok(Reply::Done) => true,
            Ok(other) => return Err(unexpected(&other)),
            Err(Error::Unsupported { .. }) => false,
            Err(error) => return Err(error),
        };
        self.inner().peers.0.lock().push((address, reached));
        Ok(reached)
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// Copies all of this buffer into `to`, which has as many elements, is on another device, and has nothing left to
    /// run there. `stream` is one of this buffer's device.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the lengths differ or `to` has work left to run, [`Error::Unsupported`] if this device
    /// does not [`reach`](Device::reach) the other one, or what the backend says.
    pub fn copy_to_peer(&self, stream: &Stream, to: DeviceBuffer<T>) -> Result<Crossing<T>> {
        let wrong = |detail| Error::OutOfRange { what: "a copy to another device".into(), detail };
        if to.len() != self.len() {
            let (from, to) = (self.len(), to.len());
            return Err(wrong(format!("{from} elements into a buffer of {to}")));
        }
        if !to.allocation().is_settled() {
            let detail = "the destination has work left to run on its own device";
            return Err(wrong(format!("{detail}; wait for that first")));
        }
        if self.is_empty() {
            return Ok(Crossing {
                stream: stream.clone(),
                ticket: stream.last(),
                buffer: Some(to),
            });
        }
        let bytes = self.allocation().bytes();
        let reached = self.device().known_to_reach(to.device()).unwrap_or(false);
        let region = to.device().backend().peer_region(to.allocation().region(0), bytes);
        let Some(region) = region.filter(|_| reached) else {
            let what = format!("a copy to `{}`", to.device().info().address);
            return Err(Error::unsupported(what, &self.device().info().address));
        };
        let from = self.allocation().region(0);
        let command = Command::CopyToPeer { from, to: region, bytes };
        let keep = Kept::Peer(to.allocation().clone());
        let ticket = stream.submit(command, &self.uses(Access::Read), Some(keep))?;
        Ok(Crossing { stream: stream.clone(), ticket, buffer: Some(to) })
    }
}

/// A copy to another device on its way.
#[derive(Debug)]
pub struct Crossing<T> {
    stream: Stream,
    ticket: Ticket,
    /// Taken when it is there.
    buffer: Option<DeviceBuffer<T>>,
}

impl<T: Element> Crossing<T> {
    /// The submission that fills the buffer, on a stream of the source's device.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The buffer, if it is known that the copy has arrived. Asks nobody.
    pub fn try_take(&mut self) -> Option<Result<DeviceBuffer<T>>> {
        let outcome = self.stream.outcome(self.ticket.number)?;
        let buffer = self.buffer.take().ok_or(Error::AlreadyEnded);
        Some(outcome.and(buffer))
    }
}
