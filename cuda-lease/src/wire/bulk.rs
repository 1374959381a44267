//! Bulk data: the bytes of uploads and downloads, in chunks.

use super::{Reader, TransferId, WireError, Writer, opcode};

/// A part of the bytes of an upload or download. The chunks of one transfer are sent in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The upload or download.
    pub transfer: TransferId,
    /// The offset of the chunk in the transfer, in bytes.
    pub offset: u64,
    /// The bytes: the rest of the frame.
    pub bytes: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// The opcode of this message.
    pub const OPCODE: u16 = opcode::CHUNK;

    /// The maximum number of bytes in a chunk.
    pub const LIMIT: usize = 256 << 10;

    /// Appends the body of this message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Writer::new(out).put(self.transfer).put(self.offset).put_raw(self.bytes);
    }

    /// Reads a body of this message.
    ///
    /// # Errors
    /// An error if the bytes end, or a chunk has more than [`Chunk::LIMIT`] bytes.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        let (transfer, offset, bytes) = (r.get()?, r.get()?, r.rest());
        if bytes.len() > Self::LIMIT {
            let (length, limit) = (bytes.len() as u64, Self::LIMIT as u64);
            return Err(WireError::TooLong { what: "a chunk", length, limit });
        }
        Ok(Self { transfer, offset, bytes })
    }
}
