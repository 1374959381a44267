//! The frames that one side receives on a lane.

use crate::wire::{Header, WireError};

/// A violation of the protocol by the other side. The session ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A frame belongs to another session.
    #[error("a frame has epoch {epoch}, the session has epoch {expected}")]
    Epoch {
        /// The epoch of the frame.
        epoch: u32,
        /// The epoch of this session.
        expected: u32,
    },
    /// Frames are missing before this one.
    #[error(
        "frame {sequence} arrived after frame {last}; sequence numbers start at 1 and rise by 1"
    )]
    Gap {
        /// The sequence number of the frame.
        sequence: u64,
        /// The sequence number of the frame before it.
        last: u64,
    },
    /// An acknowledgement names a frame that was not sent, or takes an earlier one back.
    #[error(
        "the peer acknowledged frame {sequence}; the last frame that was sent to it, or that it had acknowledged \
         before, is {last}"
    )]
    Acknowledgement {
        /// The sequence number of the acknowledged frame.
        sequence: u64,
        /// The last frame that was sent or acknowledged.
        last: u64,
    },
    /// A command names an object that does not exist, or breaks another rule.
    #[error("{0}")]
    Command(String),
    /// The bytes of a frame are malformed.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// The sequence of frames that one side receives on a lane.
#[derive(Debug)]
pub struct Incoming {
    epoch: u32,
    received: u64,
    /// The bytes that were received and not acknowledged.
    unreported: usize,
}

impl Incoming {
    /// Creates the sequence of a new session.
    pub fn new(epoch: u32) -> Self {
        Self { epoch, received: 0, unreported: 0 }
    }

    /// Returns the sequence number of the last frame that was received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Takes a frame. Returns whether it is new; frames that were received before are to be skipped.
    ///
    /// # Errors
    /// [`SessionError::Epoch`] or [`SessionError::Gap`].
    #[inline]
    pub fn accept(&mut self, header: &Header) -> Result<bool, SessionError> {
        if header.epoch != self.epoch {
            return Err(SessionError::Epoch { epoch: header.epoch, expected: self.epoch });
        }
        if header.sequence > self.received + 1 || header.sequence == 0 {
            let (sequence, last) = (header.sequence, self.received);
            return Err(SessionError::Gap { sequence, last });
        }
        self.unreported += header.length as usize;
        let is_new = header.sequence == self.received + 1;
        self.received = self.received.max(header.sequence);
        Ok(is_new)
    }

    /// Returns the sequence number to acknowledge if at least `bytes` bytes were received since the last
    /// acknowledgement.
    pub fn acknowledgement(&mut self, bytes: usize) -> Option<u64> {
        if self.unreported < bytes || self.unreported == 0 {
            return None;
        }
        self.unreported = 0;
        Some(self.received)
    }
}
