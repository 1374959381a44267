//! Sends the bytes of a blob on a stream of its own.

use bytes::Bytes;
use cuda_core::protocol::Status;
use quinn::RecvStream;

use super::end::End;
use crate::wire::{FrameBuffer, Hash, PutBlob, Refused, WireError, put_frame};

/// Sends a blob, and waits until the node has it. The inner error is a refusal of the node.
pub(super) async fn put_blob(
    connection: &quinn::Connection,
    lease: u64,
    token: Bytes,
    hash: Hash,
    image: Bytes,
) -> Result<Result<(), (Status, String)>, End> {
    let (mut send, mut receive) = connection.open_bi().await?;
    let put = PutBlob { lease, token, hash, bytes: image.len() as u64 };
    let mut out = Vec::new();
    put_frame(&mut out, PutBlob::OPCODE, 0, 0, |out| put.encode(out));
    // A node that refuses stops the stream, and its reply has the reason.
    if send.write_all(&out).await.is_ok() && send.write_chunk(image).await.is_ok() {
        _ = send.finish();
    }
    Ok(read_frame(&mut receive, &mut FrameBuffer::default()).await?.map(drop))
}

/// The opcode and the body of a frame, or a refusal of the node.
pub(super) type Reply = Result<(u16, Bytes), (Status, String)>;

/// Reads the next frame of a stream.
pub(super) async fn read_frame(
    receive: &mut RecvStream,
    buffer: &mut FrameBuffer,
) -> Result<Reply, End> {
    loop {
        if let Some(frames) = buffer.take_first()?
            && let Some(frame) = frames.iter().next()
        {
            if frame.header.opcode == Refused::OPCODE {
                let refused = Refused::decode(frame.body)?;
                return Ok(Err((refused.status, refused.detail)));
            }
            return Ok(Ok((frame.header.opcode, Bytes::copy_from_slice(frame.body))));
        }
        match receive.read_chunk(usize::MAX, true).await? {
            Some(chunk) => buffer.extend(&chunk.bytes),
            None => return Err(WireError::Truncated { missing: 1 }.into()),
        }
    }
}
