//! Sends the bytes of a blob on a stream of its own.

use bytes::Bytes;

use super::replies::next_reply;
use crate::{
    client::end::{End, Refusal},
    wire::{FrameBuffer, Hash, PutBlob, WireError, put_frame},
};

/// Sends a blob, and waits until the node has it. The inner error is a refusal of the node.
pub(in crate::client) async fn put_blob(
    connection: &quinn::Connection,
    lease: u64,
    token: Bytes,
    hash: Hash,
    image: Bytes,
) -> Result<Result<(), Refusal>, End> {
    let (mut send, mut receive) = connection.open_bi().await?;
    let put = PutBlob { lease, token, hash, bytes: image.len() as u64 };
    let mut out = Vec::new();
    put_frame(&mut out, PutBlob::OPCODE, 0, 0, |out| put.encode(out));
    // A node that refuses stops the stream, and its reply has the reason.
    if send.write_all(&out).await.is_ok() && send.write_chunk(image).await.is_ok() {
        _ = send.finish();
    }
    let reply = next_reply(&mut receive, &mut FrameBuffer::default()).await?;
    let reply = reply.ok_or(WireError::Truncated { missing: 1 })?;
    Ok(reply.content.map(drop))
}
