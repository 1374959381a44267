//! A download in flight.

use std::{marker::PhantomData, sync::Arc};

use super::pinned::PinnedBuffer;
use crate::{
    handle::stream::Stream,
    protocol::{Element, Error, Result, Ticket},
    runtime::Lease,
};

/// A download in flight. Gives the pinned buffer when the bytes have arrived.
pub struct Landing<T> {
    /// A clone of the handle that submitted the download. It counts no submissions.
    stream: Stream,
    ticket: Ticket,
    /// `None` after the buffer was taken.
    buffer: Option<(Arc<Lease>, usize)>,
    element: PhantomData<T>,
}

impl<T: Element> Landing<T> {
    /// `lease` is the block that the submission `ticket` of `stream` fills with `len` elements.
    pub(super) fn new(stream: &Stream, ticket: Ticket, lease: Arc<Lease>, len: usize) -> Self {
        Self { stream: stream.clone(), ticket, buffer: Some((lease, len)), element: PhantomData }
    }

    /// Returns the ticket of the submission that fills the buffer.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.buffer.as_ref().map_or(0, |(_, len)| *len)
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the buffer if the download is known to be complete, else `None`. Does not ask the device.
    ///
    /// # Errors
    /// The failure of the download.
    pub fn try_take(&mut self) -> Option<Result<PinnedBuffer<T>>> {
        let outcome = self.stream.progress().outcome(self.ticket.number)?;
        Some(outcome.and_then(|()| self.take()))
    }

    /// Blocks the calling thread until the download is complete.
    ///
    /// # Errors
    /// The failure of the download, or the error that lost the device.
    pub fn wait(mut self) -> Result<PinnedBuffer<T>> {
        if let Some(landed) = self.try_take() {
            return landed;
        }
        self.stream.synchronize_to(self.ticket.number)?;
        self.try_take().unwrap_or(Err(Error::AlreadyEnded))
    }

    /// Called when the stream is known to have passed the copy.
    fn take(&mut self) -> Result<PinnedBuffer<T>> {
        let (lease, len) = self.buffer.take().ok_or(Error::AlreadyEnded)?;
        Ok(PinnedBuffer::of_lease(lease, len))
    }
}
