//! Sends a job and reads its reply.

use bytes::Bytes;
use cuda_core::{Error, Limit, Quantity, Result, protocol::Status};
use quinn::{RecvStream, SendStream, WriteError};
use tracing::Instrument;

use super::{call::Submitted, channel::Channel, job::Job};
use crate::{
    client::{
        end::{End, Refusal},
        spans,
        streams::{blob::put_blob, replies::next_reply},
    },
    wire::{self, FrameBuffer, TraceContext, WireError, put_frame},
};

/// The bytes of an input between two reports of its progress.
const REPORTED: usize = 256 << 10;

/// The lease that runs a job.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) lease: u64,
    pub(crate) token: Bytes,
    /// The span that the submit belongs to.
    pub(crate) trace: Option<TraceContext>,
}

/// Runs a job in a span of its own, whose parent is the current span.
///
/// # Errors
/// The operating system gives no random numbers for the ids of the span.
pub(super) fn perform(
    channel: Channel,
    mut target: Target,
    job: Job,
) -> Result<impl Future<Output = Result<Submitted>> + Send + 'static> {
    let trace = spans::next(job.trace.or(target.trace))?;
    target.trace = Some(trace);
    let span = spans::submit(&trace, &channel.address, target.lease);
    Ok(repeat(channel, target, job).instrument(span))
}

/// Runs a job. Repeats it on the next connection if one is lost.
async fn repeat(mut channel: Channel, target: Target, job: Job) -> Result<Submitted> {
    for (what, bytes, limit) in [
        ("the input of a submit", job.input.len() as u64, wire::Submit::INPUT_LIMIT),
        ("the output of a submit", job.max_output, wire::Submit::OUTPUT_LIMIT),
    ] {
        Limit::AtMost(limit).check(what, Quantity::Bytes, bytes)?;
    }
    let mut is_repeated = false;
    loop {
        let connection = channel.next(is_repeated).await?;
        is_repeated = true;
        match attempt(&connection, &target, &job).await {
            Ok(Ok(submitted)) => return finish(&channel, submitted),
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

fn finish(channel: &Channel, (submitted, output): (wire::Submitted, Bytes)) -> Result<Submitted> {
    let wire::Submitted { status, text, .. } = submitted;
    if status != Status::Ok {
        return Err(channel.refused((status, text)));
    }
    Ok(Submitted { exit_code: status, output, text })
}

/// Sends the job by the hash of its image, and once more with the image if the node does not have it.
async fn attempt(
    connection: &quinn::Connection,
    target: &Target,
    job: &Job,
) -> Result<Result<(wire::Submitted, Bytes), Refusal>, End> {
    let first = send(connection, target, job, None).await?;
    if !matches!(first, Err((Status::NotFound, _))) {
        return Ok(first);
    }
    if job.image.len() <= wire::Submit::IMAGE_LIMIT {
        return send(connection, target, job, Some(job.image.clone())).await;
    }
    let (lease, token) = (target.lease, target.token.clone());
    if let Err(refused) = put_blob(connection, lease, token, job.hash, job.image.clone()).await? {
        return Ok(Err(refused));
    }
    send(connection, target, job, None).await
}

async fn send(
    connection: &quinn::Connection,
    target: &Target,
    job: &Job,
    image: Option<Bytes>,
) -> Result<Result<(wire::Submitted, Bytes), Refusal>, End> {
    let submit = wire::Submit {
        lease: target.lease,
        token: target.token.clone(),
        kind: job.kind,
        hash: job.hash,
        image,
        kernel: job.kernel.clone(),
        grid: job.config.grid,
        block: job.config.block,
        shared_bytes: job.config.shared_bytes,
        arguments: job.arguments.clone(),
        region_bytes: job.region_bytes,
        input_bytes: job.input.len() as u64,
        output_offset: job.output_offset,
        max_output: job.max_output,
        trace: target.trace,
    };
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
    let submitted = wire::Submitted::decode(&body)?;
    let output = match submitted.following_bytes {
        0 => submitted.output.clone(),
        bytes => following(&mut receive, &mut buffer, bytes).await?,
    };
    Ok(Ok((submitted, output)))
}

/// Sends the input behind the frame.
async fn send_input(send: &mut SendStream, job: &Job) -> std::result::Result<(), WriteError> {
    let Some(progress) = &job.progress else { return send.write_chunk(job.input.clone()).await };
    let (mut input, mut sent) = (job.input.clone(), 0);
    progress.report(sent);
    while !input.is_empty() {
        let part = input.split_to(input.len().min(REPORTED));
        let length = part.len() as u64;
        send.write_chunk(part).await?;
        sent += length;
        progress.report(sent);
    }
    Ok(())
}

/// Reads the output behind the frame.
async fn following(
    receive: &mut RecvStream,
    buffer: &mut FrameBuffer,
    length: u64,
) -> Result<Bytes, End> {
    let limit = wire::Submit::OUTPUT_LIMIT;
    if length > limit {
        return Err(WireError::TooLong { what: "an output", length, limit }.into());
    }
    let length = length as usize;
    let mut output = buffer.buffer().split().to_vec();
    while output.len() < length {
        match receive.read_chunk(usize::MAX, true).await? {
            Some(chunk) => output.extend_from_slice(&chunk.bytes),
            None => return Err(WireError::Truncated { missing: length - output.len() }.into()),
        }
    }
    output.truncate(length);
    Ok(output.into())
}
