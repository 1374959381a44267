//! Frames: the units of a byte stream.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | `u32` | length of the body in bytes |
//! | 4 | `u16` | opcode |
//! | 6 | `u16` | flags, 0 |
//! | 8 | `u32` | epoch: the number of the session; 0 outside of a session |
//! | 12 | `u64` | sequence number of the frame on its lane, from 1; 0 for a frame that has none |
//! | 20 | | body |

use bytes::{Bytes, BytesMut};

use super::{Reader, WireError, Writer, codec::length};

/// The length of a header in bytes.
pub const HEADER_BYTES: usize = 20;

/// The maximum length of the body of a frame in bytes.
pub const FRAME_LIMIT: u32 = 1 << 20;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The length of the body in bytes.
    pub length: u32,
    /// The opcode.
    pub opcode: u16,
    /// The number of the session, or 0.
    pub epoch: u32,
    /// The sequence number on the lane, or 0.
    pub sequence: u64,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// An error if the bytes end, or the flags are not 0.
    #[inline]
    pub fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (length, opcode, flags) = (r.get()?, r.get()?, r.get::<u16>()?);
        if flags != 0 {
            return Err(WireError::Undefined {
                what: "a frame's flags field",
                value: flags.into(),
            });
        }
        Ok(Self { length, opcode, epoch: r.get()?, sequence: r.get()? })
    }
}

/// Appends a frame whose body `body` writes.
///
/// ```
/// use cuda_lease::wire::{HEADER_BYTES, put_frame};
///
/// let mut out = Vec::new();
/// put_frame(&mut out, 0x0300, 0, 1, |_| {});
/// assert_eq!(out.len(), HEADER_BYTES);
/// ```
#[inline]
pub fn put_frame(
    out: &mut Vec<u8>,
    opcode: u16,
    epoch: u32,
    sequence: u64,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    Writer::new(out).put(0u32).put(opcode).put(0u16).put(epoch).put(sequence);
    body(out);
    let length = length(out.len() - start - HEADER_BYTES);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// One frame of a [`Frames`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// The body.
    pub body: &'a [u8],
    /// Header and body.
    pub bytes: &'a [u8],
}

/// Complete frames, one after the other.
#[derive(Debug, Clone, Default)]
pub struct Frames(Bytes);

impl Frames {
    /// Wraps the bytes of complete frames. Iteration ends before an incomplete one.
    pub fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of all frames.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Iterates over the frames.
    pub fn iter(&self) -> impl Iterator<Item = Frame<'_>> {
        frames_in(&self.0)
    }
}

/// Iterates over the complete frames at the start of `bytes`.
pub fn frames_in(bytes: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let header = Header::read(&mut Reader::new(rest)).ok()?;
        let (bytes, behind) = rest.split_at_checked(HEADER_BYTES + header.length as usize)?;
        rest = behind;
        Some(Frame { header, body: &bytes[HEADER_BYTES..], bytes })
    })
}

/// Returns the length of the complete frames at the start of `bytes`, at most `count` of them.
///
/// # Errors
/// [`WireError::TooLong`] for a frame above [`FRAME_LIMIT`], as soon as its header is there.
pub fn complete_frames(bytes: &[u8], count: usize) -> Result<usize, WireError> {
    let (mut complete, mut found) = (0, 0);
    while let Some(rest) = bytes.get(complete..)
        && rest.len() >= HEADER_BYTES
        && found < count
    {
        let length = Header::read(&mut Reader::new(rest))?.length;
        if length > FRAME_LIMIT {
            let (length, limit) = (length.into(), FRAME_LIMIT.into());
            return Err(WireError::TooLong { what: "a frame", length, limit });
        }
        let end = HEADER_BYTES + length as usize;
        if rest.len() < end {
            break;
        }
        complete += end;
        found += 1;
    }
    Ok(complete)
}

/// Collects the bytes of a stream, and splits them into frames. Holds at most one incomplete frame besides the bytes
/// that were added since the last [`take`](FrameBuffer::take).
#[derive(Debug, Default)]
pub struct FrameBuffer(BytesMut);

impl FrameBuffer {
    /// Adds bytes of the stream.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Returns the buffer, for a reader that appends to it.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.0
    }

    /// Returns whether the stream is between two frames.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the complete frames that have arrived, perhaps none.
    ///
    /// # Errors
    /// [`WireError::TooLong`] for a frame above [`FRAME_LIMIT`], as soon as its header is there.
    pub fn take(&mut self) -> Result<Frames, WireError> {
        self.take_up_to(usize::MAX)
    }

    /// Takes the first frame, if it is complete.
    ///
    /// # Errors
    /// The errors of [`take`](Self::take).
    pub fn take_first(&mut self) -> Result<Option<Frames>, WireError> {
        let first = self.take_up_to(1)?;
        Ok((!first.bytes().is_empty()).then_some(first))
    }

    fn take_up_to(&mut self, count: usize) -> Result<Frames, WireError> {
        let complete = complete_frames(&self.0, count)?;
        Ok(Frames(self.0.split_to(complete).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_any_split_of_the_bytes() {
        let mut out = Vec::new();
        for sequence in 1..=3u64 {
            put_frame(&mut out, 9, 4, sequence, |out| out.resize(out.len() + sequence as usize, 7));
        }
        for split in 0..out.len() {
            let mut buffer = FrameBuffer::default();
            let mut found = Vec::new();
            for part in [&out[..split], &out[split..]] {
                buffer.extend(part);
                let frames = buffer.take().unwrap();
                found.extend(frames.iter().map(|frame| (frame.header.sequence, frame.body.len())));
            }
            assert_eq!(found, [(1, 1), (2, 2), (3, 3)]);
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn length_above_the_limit_is_refused_before_the_body_arrives() {
        let mut buffer = FrameBuffer::default();
        let mut header = Vec::new();
        Writer::new(&mut header).put(FRAME_LIMIT + 1).put(1u16).put(0u16).put(0u32).put(1u64);
        buffer.extend(&header);
        assert!(matches!(buffer.take(), Err(WireError::TooLong { what: "a frame", .. })));
    }
}
