//! Reads the replies of the node from a stream.

use bytes::Bytes;
use quinn::RecvStream;

use crate::{
    client::end::{End, Refusal},
    wire::{FrameBuffer, Refused},
};

/// A reply of the node.
pub(in crate::client) struct Reply {
    /// The sequence number of the frame. On the request stream, it is the id of the request.
    pub(super) sequence: u64,
    /// The opcode and the body, or a refusal.
    pub(in crate::client) content: Result<(u16, Bytes), Refusal>,
}

/// Reads the next reply. Returns `None` at the end of the stream. Cancelling this loses nothing.
pub(in crate::client) async fn next_reply(
    receive: &mut RecvStream,
    buffer: &mut FrameBuffer,
) -> Result<Option<Reply>, End> {
    loop {
        if let Some(frames) = buffer.take_first()?
            && let Some(frame) = frames.iter().next()
        {
            let content = match frame.header.opcode {
                Refused::OPCODE => {
                    let refused = Refused::decode(frame.body)?;
                    Err((refused.status, refused.detail))
                }
                opcode => Ok((opcode, Bytes::copy_from_slice(frame.body))),
            };
            return Ok(Some(Reply { sequence: frame.header.sequence, content }));
        }
        match receive.read_chunk(usize::MAX, true).await? {
            Some(chunk) => buffer.extend(&chunk.bytes),
            None => return Ok(None),
        }
    }
}
