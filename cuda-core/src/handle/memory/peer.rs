//! Copies from device to device.
//!
//! # Rules
//! A ticket orders work of one device only. So the caller gives up the destination buffer for the time of the copy.
//! Work that used it on its own device is complete by then. A [`PeerCopy`] returns the buffer when the source's stream
//! has passed the copy. Until then that stream retains the memory, so a `PeerCopy` may be dropped or forgotten.

use std::sync::atomic::{AtomicU64, Ordering};

use super::buffer::DeviceBuffer;
use crate::handle::memory::buffer::Slice;
use crate::{
    handle::{
        device::Device,
        stream::{Attached, Keep, Stream},
    },
    order::timeline::Until,
    protocol::{
        Access, Control, Element, Error, Feature, Limit, MemoryConflict, Misuse, Quantity, Reply,
        Request, Result, Ticket, TransferId, Work,
    },
    runtime::{Pending, unexpected},
};

/// The id of the next transfer. Ids are unique in the process, because the backends of two devices use them.
static NEXT_TRANSFER: AtomicU64 = AtomicU64::new(1);

impl Device {
    /// Returns whether this device can copy to the memory of `other` (peer access). `None` before the reply of
    /// [`reach`](Device::reach). Does not ask the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let other = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// assert_eq!(device.known_to_reach(&other), None); // `reach` was not called yet
    /// # Ok::<(), Error>(())
    /// ```
    pub fn known_to_reach(&self, other: &Device) -> Option<bool> {
        self.core().peers.known(&other.info().address)
    }

    /// Enables copies from this device to the memory of `other` (peer access). The reply is false if that is not
    /// possible. The first call for a pair of GPUs may take some milliseconds.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let other = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let has_peer_access = device.reach(&other).wait()?; // two GPUs may have it
    /// assert!(!has_peer_access);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn reach(&self, other: &Device) -> Pending<bool> {
        if let Some(known) = self.known_to_reach(other) {
            return Pending::ready(Ok(known));
        }
        let address = other.info().address.clone();
        let core = std::sync::Arc::downgrade(self.core());
        self.core().request(Request::Reach { address: address.clone() }, move |reply| match reply {
            Reply::Reached(reached) => {
                if let Some(core) = core.upgrade() {
                    core.peers.learn(address, reached);
                }
                Ok(reached)
            }
            other => Err(unexpected(&other)),
        })
    }
}

impl<T: Element> Slice<'_, T> {
    /// Copies all elements into `to`, a buffer of the same length on another device. `stream` is a stream of this
    /// slice's device. All work that uses `to` on its own device must be complete before the call.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the lengths differ; [`Error::Misuse`] inside a recording, if work that uses `to` is not
    /// known to be complete, if a recording uses `to`, or if `to` is a variable of a module; [`Error::Unsupported`] if
    /// this device does not [`reach`](Device::reach) the other one; or an error of the backend. `to` is then dropped.
    pub fn copy_to_peer(&self, stream: &Stream, to: DeviceBuffer<T>) -> Result<PeerCopy<T>> {
        let wrong =
            |conflict| Error::memory("the destination of a copy to another device", conflict);
        Limit::Exactly(self.len() as u64).check(
            "the destination of a copy to another device",
            Quantity::Elements,
            to.len() as u64,
        )?;
        if !to.allocation().is_settled() {
            return Err(wrong(MemoryConflict::InFlight));
        }
        if stream.is_recording() {
            return Err(Misuse::PeerCopyInRecording.into());
        }
        // A launch or a replay could use the destination while the other device writes it.
        if to.allocation().is_variable() {
            return Err(wrong(MemoryConflict::Variable));
        }
        if to.allocation().takes_turns() {
            return Err(wrong(MemoryConflict::Recorded));
        }
        if self.is_empty() {
            return Ok(PeerCopy {
                stream: stream.clone(),
                ticket: Ticket { stream: stream.id(), number: 0 },
                buffer: Some(to),
            });
        }
        if !self.device().known_to_reach(to.device()).unwrap_or(false) {
            return Err(Error::unsupported(Feature::PeerCopy, &self.device().info().address));
        }
        let (from, into) = (self.view(), to.view());
        let bytes = from.bytes;
        let transfer = TransferId(NEXT_TRANSFER.fetch_add(1, Ordering::Relaxed));
        let receive = Control::Receive { transfer, to: into.region(), bytes };
        // SAFETY: the destination belongs to this call, has nothing left to run, and is retained below.
        unsafe { to.device().core().backend.control(receive) }?;
        let work = Work::Send { from: from.region(), transfer, bytes };
        let keep = Keep { until: Until::Complete, resource: to.allocation().clone() };
        // SAFETY: the copy reads `from` and writes `to`, which belongs to this call until the copy is complete.
        let ticket = unsafe {
            stream.submit(
                &work,
                &[from.operand(Access::Read)],
                Attached { keep: Some(keep), ..Attached::default() },
            )
        }?;
        Ok(PeerCopy { stream: stream.clone(), ticket, buffer: Some(to) })
    }
}

/// A copy to another device in flight. Returns the destination buffer when the copy is complete.
#[derive(Debug)]
pub struct PeerCopy<T> {
    stream: Stream,
    ticket: Ticket,
    /// Taken when the copy is complete.
    buffer: Option<DeviceBuffer<T>>,
}

impl<T: Element> PeerCopy<T> {
    /// Returns the ticket of the submission that fills the buffer, on a stream of the source's device.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns the buffer if the copy is known to be complete, else `None`. Does not ask the device.
    pub fn try_take(&mut self) -> Option<Result<DeviceBuffer<T>>> {
        let outcome = self.stream.timeline().progress.outcome(self.ticket.number)?;
        let buffer = self.buffer.take().ok_or(Error::AlreadyEnded);
        Some(outcome.and(buffer))
    }
}
