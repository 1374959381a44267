//! Sessions: numbering, acknowledgement and resumption of frames.
//!
//! A session has two [lanes](crate::wire::Lane), each with an ordered sequence of frames in each direction. An
//! [`Outgoing`] sequence keeps its frames until the other side has acknowledged them. After a lost connection it sends
//! those that the other side has not received. An [`Incoming`] sequence checks the numbers. So each frame arrives
//! exactly once, also if connections are lost.
//!
//! Everything here is pure: no clock, no network, no device. It uses `wire` and nothing else of this crate.
//! `client` and the crate `cuda-node` drive it.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use bytes::Bytes;

use crate::wire::{Frame, HEADER_BYTES, Header, Reader, WireError, put_frame};

/// The number of received bytes after which they are acknowledged. Both sides use it.
pub const ACKNOWLEDGED_STEP: usize = 256 << 10;

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

    /// Returns the sequence number to acknowledge if at least [`ACKNOWLEDGED_STEP`] bytes were received since the last
    /// acknowledgement.
    pub fn acknowledgement(&mut self) -> Option<u64> {
        if self.unreported < ACKNOWLEDGED_STEP {
            return None;
        }
        self.unreported = 0;
        Some(self.received)
    }
}

/// The sequence of frames that one side sends on a lane. It keeps each frame until the other side acknowledges it.
#[derive(Debug)]
pub struct Outgoing {
    epoch: u32,
    /// The sequence number of the next frame.
    next: u64,
    /// The frames behind the last batch.
    open: Vec<u8>,
    /// Frames that are not acknowledged, in batches.
    batches: VecDeque<Batch>,
    /// The number of batches that were given out for sending on this connection.
    sent: usize,
    /// Their bytes.
    in_flight: usize,
    /// The sequence number of the last frame that was given out for sending on any connection.
    last_sent: u64,
    /// The sequence number of the last acknowledged frame.
    acknowledged: u64,
    /// The bytes of all batches and of `open`.
    bytes: usize,
}

/// Frames that are sent together.
#[derive(Debug)]
struct Batch {
    /// The sequence number of the last frame.
    last: u64,
    frames: Bytes,
}

impl Outgoing {
    /// Creates the sequence of a new session.
    pub fn new(epoch: u32) -> Self {
        Self {
            epoch,
            next: 1,
            open: Vec::new(),
            batches: VecDeque::new(),
            sent: 0,
            in_flight: 0,
            last_sent: 0,
            acknowledged: 0,
            bytes: 0,
        }
    }

    /// Appends a frame whose body `body` writes. Returns its sequence number.
    #[inline]
    pub fn push(&mut self, opcode: u16, body: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let (before, sequence) = (self.open.len(), self.next);
        put_frame(&mut self.open, opcode, self.epoch, sequence, body);
        self.bytes += self.open.len() - before;
        self.next += 1;
        sequence
    }

    /// Appends a frame that has no number yet.
    pub fn forward(&mut self, frame: &Frame<'_>) -> u64 {
        self.push(frame.header.opcode, |out| out.extend_from_slice(frame.body))
    }

    /// Takes the frames to send next, if there are any.
    pub fn take(&mut self) -> Option<Bytes> {
        if self.sent == self.batches.len() && !self.open.is_empty() {
            let room = Vec::with_capacity(self.open.len());
            let frames = Bytes::from(std::mem::replace(&mut self.open, room));
            self.batches.push_back(Batch { last: self.next - 1, frames });
        }
        let batch = self.batches.get(self.sent)?;
        self.sent += 1;
        self.in_flight += batch.frames.len();
        self.last_sent = self.last_sent.max(batch.last);
        Some(batch.frames.clone())
    }

    /// Returns whether [`take`](Self::take) would return frames.
    pub fn has_more(&self) -> bool {
        self.sent < self.batches.len() || !self.open.is_empty()
    }

    /// Returns the bytes that are not acknowledged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes that were given out for sending on this connection and are not acknowledged.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns the sequence number of the last frame that was given out for sending on any connection.
    pub fn last_sent(&self) -> u64 {
        self.last_sent
    }

    /// Returns the sequence number of the last frame.
    pub fn last(&self) -> u64 {
        self.next - 1
    }

    /// Returns the sequence number of the last acknowledged frame.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Records that the other side has received all frames up to `sequence`.
    ///
    /// # Errors
    /// [`SessionError::Acknowledgement`] for a frame that was not sent.
    pub fn acknowledge(&mut self, sequence: u64) -> Result<(), SessionError> {
        if sequence > self.last_sent {
            return Err(SessionError::Acknowledgement { sequence, last: self.last_sent });
        }
        self.acknowledged = self.acknowledged.max(sequence);
        while let Some(first) = self.batches.front()
            && first.last <= sequence
        {
            self.bytes -= first.frames.len();
            if self.sent > 0 {
                self.sent -= 1;
                self.in_flight -= first.frames.len();
            }
            self.batches.pop_front();
        }
        Ok(())
    }

    /// Resumes on a new connection. Discards the frames that the peer has received, all up to `received`, and sends the
    /// later ones again.
    ///
    /// # Errors
    /// [`SessionError::Acknowledgement`] if the other side claims a frame that was not sent, or does not have one that
    /// it had acknowledged.
    pub fn resume(&mut self, received: u64) -> Result<(), SessionError> {
        if received < self.acknowledged {
            let (sequence, last) = (received, self.acknowledged);
            return Err(SessionError::Acknowledgement { sequence, last });
        }
        self.acknowledge(received)?;
        if let Some(first) = self.batches.front_mut() {
            let skipped = bytes_up_to(&first.frames, received);
            self.bytes -= skipped;
            first.frames = first.frames.slice(skipped..);
        }
        (self.sent, self.in_flight) = (0, 0);
        Ok(())
    }
}

/// The number of bytes of the frames up to `sequence`.
fn bytes_up_to(frames: &[u8], sequence: u64) -> usize {
    let mut at = 0;
    while let Ok(header) = Header::read(&mut Reader::new(&frames[at..]))
        && header.sequence <= sequence
    {
        at += HEADER_BYTES + header.length as usize;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{Attach, FrameBuffer};

    fn pushed(count: u8) -> Outgoing {
        let mut outgoing = Outgoing::new(7);
        (0..count).for_each(|body| _ = outgoing.push(Attach::OPCODE, |out| out.push(body)));
        outgoing
    }

    #[test]
    fn acknowledgement_of_a_frame_that_was_not_sent_is_refused() {
        let mut outgoing = pushed(2);
        assert!(outgoing.acknowledge(1).is_err());
        assert!(outgoing.take().is_some() && outgoing.take().is_none());
        outgoing.push(1, |_| {});
        assert!(outgoing.acknowledge(3).is_err());
        assert_eq!(outgoing.acknowledge(2), Ok(()));
        assert_eq!(outgoing.bytes(), HEADER_BYTES);
    }

    #[test]
    fn peer_cannot_forget_frames_that_it_acknowledged() {
        let mut outgoing = pushed(2);
        _ = outgoing.take();
        outgoing.acknowledge(2).unwrap();
        assert!(outgoing.resume(1).is_err());
        assert_eq!(outgoing.resume(2), Ok(()));
    }

    proptest! {
        /// Sends frames over connections that are cut after any number of bytes, with acknowledgements at any time.
        #[test]
        fn every_frame_arrives_exactly_once(
            steps in prop::collection::vec((0u8..4, 0usize..200), 1..200),
        ) {
            let mut outgoing = Outgoing::new(3);
            let mut incoming = Incoming::new(3);
            let (mut buffer, mut on_the_way) = (FrameBuffer::default(), Vec::new());
            let (mut pushed, mut arrived) = (0u64, 0u64);
            let deliver = |bytes: &[u8], buffer: &mut FrameBuffer, incoming: &mut Incoming, arrived: &mut u64| {
                buffer.extend(bytes);
                for frame in buffer.take().unwrap().iter() {
                    if incoming.accept(&frame.header).unwrap() {
                        prop_assert_eq!(frame.body, &arrived.to_le_bytes());
                        *arrived += 1;
                    }
                }
                Ok(())
            };
            for (step, size) in steps {
                match step {
                    0 => {
                        outgoing.push(9, |out| out.extend_from_slice(&pushed.to_le_bytes()));
                        pushed += 1;
                    }
                    1 => on_the_way.extend(outgoing.take().into_iter().flatten()),
                    2 => {
                        let size = size.min(on_the_way.len());
                        let bytes: Vec<u8> = on_the_way.drain(..size).collect();
                        deliver(&bytes, &mut buffer, &mut incoming, &mut arrived)?;
                        if size % 3 == 0 {
                            outgoing.acknowledge(incoming.received()).unwrap();
                        }
                    }
                    _ => {
                        on_the_way.clear();
                        buffer = FrameBuffer::default();
                        outgoing.resume(incoming.received()).unwrap();
                        prop_assert_eq!(outgoing.in_flight(), 0);
                    }
                }
                prop_assert!(outgoing.in_flight() <= outgoing.bytes());
            }
            on_the_way.extend(std::iter::from_fn(|| outgoing.take()).flatten());
            deliver(&on_the_way, &mut buffer, &mut incoming, &mut arrived)?;
            prop_assert_eq!(arrived, pushed);
            prop_assert_eq!(outgoing.in_flight(), outgoing.bytes());
            outgoing.acknowledge(arrived).unwrap();
            prop_assert_eq!((outgoing.bytes(), outgoing.in_flight()), (0, 0));
        }
    }
}
