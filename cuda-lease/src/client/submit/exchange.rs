//! Sends a job and reads its reply.

use bytes::Bytes;
use cuda_core::{Error, Result, protocol::Status};
use quinn::{SendStream, WriteError};
use tracing::Instrument;

use super::{call::Submitted, channel::Channel, job::Payload};
use crate::{
    client::{
        end::{End, Refusal},
        spans,
        streams::{blob::put_blob, replies::next_reply},
    },
    wire::{self, FrameBuffer, WireError, put_frame},
};

/// The bytes of an input between two reports of its progress.
const REPORTED: usize = 256 << 10;

/// Runs a job in a span of its own, whose parent is the current span.
///
/// # Errors
/// The operating system gives no random numbers for the ids of the span.
pub(super) fn perform(
    channel: Channel,
    mut job: Payload,
) -> Result<impl Future<Output = Result<Submitted>> + Send + 'static> {
    let trace = spans::next(job.request.trace)?;
    job.request.trace = Some(trace);
    let span = spans::submit(&trace, &channel.address, job.request.lease);
    Ok(repeat(channel, job).instrument(span))
}

/// Runs a job. Repeats it on the next connection if one is lost.
async fn repeat(mut channel: Channel, job: Payload) -> Result<Submitted> {
    let mut is_repeated = false;
    loop {
        let connection = channel.next(is_repeated).await?;
        is_repeated = true;
        match attempt(&connection, &job).await {
            Ok(Ok(wire::Submitted { status: Status::Ok, text, output, .. })) => {
                return Ok(Submitted { exit_code: Status::Ok, output, text });
            }
            Ok(Ok(wire::Submitted { status, text, .. })) => {
                return Err(channel.refused((status, text)));
            }
            Ok(Err(refused)) => return Err(channel.refused(refused)),
            Err(End::Lost(cause)) => {
                if connection.close_reason().is_none() {
                    let detail = format!("the node ended the stream of the submit: {cause}");
                    return Err(channel.refused((Status::Internal, detail)));
                }
                tracing::debug!(cause, "a submit is repeated on the next connection");
            }
            Err(End::Refused(status, detail)) => return Err(channel.refused((status, detail))),
            Err(End::Broken(error)) => {
                let detail = format!("the node broke the protocol: {error}");
                return Err(channel.refused((Status::Internal, detail)));
            }
            Err(End::Stopped(cause)) => {
                let address = channel.address.clone();
                return Err(Error::Disconnected { address, cause, may_have_run: true });
            }
            Err(End::Closed) => return Err(channel.ended(true)),
        }
    }
}

/// Sends the job by the hash of its image, and once more with the image if the node does not have it.
async fn attempt(
    connection: &quinn::Connection,
    job: &Payload,
) -> Result<Result<wire::Submitted, Refusal>, End> {
    let first = send(connection, job, None).await?;
    if !matches!(first, Err((Status::NotFound, _))) {
        return Ok(first);
    }
    if job.image.len() <= wire::Submit::IMAGE_LIMIT {
        return send(connection, job, Some(job.image.clone())).await;
    }
    let wire::Submit { lease, token, hash, .. } = &job.request;
    let put = put_blob(connection, *lease, token.clone(), *hash, job.image.clone());
    match put.await? {
        Ok(()) => send(connection, job, None).await,
        Err(refused) => Ok(Err(refused)),
    }
}

async fn send(
    connection: &quinn::Connection,
    job: &Payload,
    image: Option<Bytes>,
) -> Result<Result<wire::Submitted, Refusal>, End> {
    let input_bytes = job.input.len() as u64;
    let submit = wire::Submit { image, input_bytes, ..job.request.clone() };
    let (mut send, mut receive) = connection.open_bi().await?;
    let mut out = Vec::new();
    put_frame(&mut out, wire::Submit::OPCODE, 0, 0, |out| submit.encode(out));
    if out.len() > wire::HEADER_BYTES + wire::FRAME_LIMIT as usize {
        let (length, limit) = (out.len() as u64, wire::FRAME_LIMIT.into());
        return Err(
            WireError::TooLong { what: "a submit with its arguments", length, limit }.into()
        );
    }
    // A node that refuses stops the stream, and its reply has the reason.
    if send.write_all(&out).await.is_ok() && send_input(&mut send, job).await.is_ok() {
        _ = send.finish();
    }
    let mut buffer = FrameBuffer::default();
    let reply = next_reply(&mut receive, &mut buffer).await?;
    let (opcode, body) = match reply.ok_or(WireError::Truncated { missing: 1 })?.content {
        Ok(content) => content,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if opcode != wire::Submitted::OPCODE {
        return Err(WireError::UnexpectedOpcode { opcode }.into());
    }
    let mut submitted = wire::Submitted::decode(&body)?;
    let (length, limit) = (submitted.following_bytes, wire::Submit::OUTPUT_LIMIT);
    if length > limit {
        return Err(WireError::TooLong { what: "an output", length, limit }.into());
    }
    if length > 0 {
        let mut output = buffer.buffer().split().to_vec();
        while output.len() < length as usize {
            let missing = length as usize - output.len();
            let chunk = receive.read_chunk(missing, true).await?;
            output.extend_from_slice(&chunk.ok_or(WireError::Truncated { missing })?.bytes);
        }
        submitted.output = output.into();
    }
    Ok(Ok(submitted))
}

/// Sends the input behind the frame.
async fn send_input(send: &mut SendStream, job: &Payload) -> std::result::Result<(), WriteError> {
    let Some(progress) = &job.progress else { return send.write_chunk(job.input.clone()).await };
    let (mut input, mut sent) = (job.input.clone(), 0);
    progress(sent);
    while !input.is_empty() {
        let part = input.split_to(input.len().min(REPORTED));
        let length = part.len() as u64;
        send.write_chunk(part).await?;
        sent += length;
        progress(sent);
    }
    Ok(())
}
