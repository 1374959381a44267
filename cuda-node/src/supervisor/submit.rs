//! The stream of a stateless submit, and the stream of a blob.

use std::{mem, sync::Arc, time::Instant};

use bytes::Bytes;
use cuda_core::protocol::Status;
use cuda_lease::wire::{Hash, PutBlob, Submit, opcode::REPLY};
use quinn::SendStream;
use tracing::Instrument;

use super::{
    blobs::Blobs,
    connection::Connection,
    jobs::{Jobs, Reply},
    leases::{Client, Leases},
    memory_budget::Reserved,
    spans,
    streams::{End, FrameStream, Refusal, STALL, refuse, send_bytes, send_reply},
};

/// The maximum number of arguments of a submit: CUDA has 32,764 bytes for them. Small ones take more memory in the node than
/// in their frame.
const ARGUMENTS: usize = 32_764;

/// The code with which the stream of a reply ends that its client has not taken before and shortly after the end of the
/// lease.
const LEASE_ENDED: quinn::VarInt = quinn::VarInt::from_u32(1);

/// Serves a submit: checks it, reads its input, runs it and sends the reply. The submit comes with the memory of its
/// frame.
pub(super) async fn serve(
    leases: &Arc<Leases>,
    client: &Client,
    connection: &Connection,
    submit: (Submit, Option<Reserved>),
    mut send: SendStream,
    receive: FrameStream,
) -> Result<(), End> {
    let metrics = leases.metrics();
    let (submit, frame) = submit;
    let span = spans::submit(submit.trace, &client.tenant, submit.lease).span;
    let (id, lease) = (submit.id, submit.lease);
    let ran = run(leases, client, connection, (submit, frame), receive);
    let ran = ran.instrument(span.clone()).await?;
    let status = ran.as_ref().map_or_else(|(status, _)| *status, |(_, reply)| reply.status);
    // Otherwise the node does not have the image, and the client repeats the submit with it. Or there is no such lease.
    if status != Status::NotFound {
        metrics.submitted(status);
        span.in_scope(|| tracing::debug!(%status, "a submit has ended"));
    }
    match ran {
        Ok((jobs, reply)) => {
            let replied = Instant::now();
            connection.widen(leases, client);
            let taken = async {
                reply_with(&mut send, reply).await?;
                // The client has acknowledged all of the reply. Or it has read the reply and closed the stream before the
                // stream's end reached it.
                Ok::<_, End>(send.stopped().await.is_ok())
            };
            // Otherwise a tenant that acquires one lease after the other would keep the outputs of all of them here.
            let lingered = async {
                leases.ended(lease).await;
                tokio::time::sleep(STALL).await;
            };
            let taken = tokio::select! {
                taken = taken => Some(taken?),
                () = lingered => None,
            };
            match taken {
                Some(true) => {
                    if let Some(id) = &id {
                        jobs.acknowledge(id);
                    }
                    metrics.record(replied.elapsed(), |latencies| &mut latencies.submit.wire);
                }
                Some(false) => {}
                None => _ = send.reset(LEASE_ENDED),
            }
        }
        Err((status, detail)) => {
            if status != Status::NotFound {
                client.account.request().await;
            }
            refuse(&mut send, status, &detail).await;
        }
    }
    Ok(())
}

/// Runs a submit, or waits for the answer of an earlier one with its id. Returns the queue that has the answer.
async fn run(
    leases: &Arc<Leases>,
    client: &Client,
    connection: &Connection,
    (mut submit, frame): (Submit, Option<Reserved>),
    mut receive: FrameStream,
) -> Result<Result<(Arc<Jobs>, Reply), Refusal>, End> {
    // The worker needs neither the token nor the image.
    let (lease, token) = (submit.lease, mem::take(&mut submit.token));
    let (jobs, blobs) = match leases.jobs(client, lease, &token).await {
        Ok(found) => found,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let reply = if let Some(known) = submit.id.and_then(|id| jobs.known(&id)) {
        // The client need not send the input again. The first one may run for long.
        drop((submit, receive, frame));
        known.await
    } else {
        let prepared = check(&submit).and_then(|()| image(&mut submit, &blobs)).and_then(|image| {
            client.account.submit()?;
            jobs.reserve(submit.input_bytes, image)
        });
        let place = match prepared {
            Ok(place) => place,
            Err(refusal) => return Ok(Err(refusal)),
        };
        drop(frame);
        connection.widen(leases, client);
        let input = tokio::select! {
            input = receive.read_raw(submit.input_bytes as usize) => match input {
                Ok(input) => Some(input),
                Err(end) => return not_read(end).map(Err),
            },
            () = leases.ended(lease) => None,
        };
        match input {
            Some(input) => jobs.run(submit, input.into(), place).await,
            None => None,
        }
    };
    if reply.as_ref().is_some_and(|reply| reply.status == Status::NotFound) {
        return Ok(Err(missing_image()));
    }
    if let Some(reply) = reply {
        return Ok(Ok((jobs, reply)));
    }
    Ok(Err(end_of_lease(leases.jobs(client, lease, &token).await.err())))
}

/// The refusal of a request whose lease ends meanwhile: the cause of its end, if that is known, or the worker's exit.
fn end_of_lease(cause: Option<Refusal>) -> Refusal {
    let gone = || {
        let detail = "the worker of the lease ended; acquire a new lease";
        (Status::Disconnected, detail.to_owned())
    };
    cause.filter(|(status, _)| status.ends_lease()).unwrap_or_else(gone)
}

/// The refusal of an upload whose bytes were not read. One that arrives too slowly ends alone: uploads of the same
/// connection that wait for memory may have kept it back.
///
/// # Errors
/// The end of the connection.
fn not_read(end: End) -> Result<Refusal, End> {
    match end {
        End::Refused(status, detail) => Ok((status, detail)),
        End::Stalled => Ok((Status::CapacityExceeded, End::Stalled.to_string())),
        end => Err(end),
    }
}

/// The refusal of an upload that [gives way](super::uploads::Upload::gives_way).
fn gave_way() -> End {
    let detail = "the upload of the image was too slow: another tenant waits for memory for images that arrive, and this tenant has the most of it; try again, with fewer uploads at a time";
    End::Refused(Status::CapacityExceeded, detail.into())
}

/// Checks the limits of a request.
fn check(submit: &Submit) -> Result<(), Refusal> {
    let image = submit.image.as_ref().map_or(0, Bytes::len) as u64;
    for (name, bytes, limit, advice) in [
        ("image in the frame", image, Submit::IMAGE_LIMIT as u64, "send it with `PutBlob` first"),
        ("input", submit.input_bytes, Submit::INPUT_LIMIT, "split the input into several submits"),
    ] {
        if bytes > limit {
            let detail = format!("the {name} has {bytes} bytes, the limit is {limit}; {advice}");
            return Err((Status::BadRequest, detail));
        }
    }
    let arguments = submit.arguments.len();
    if arguments > ARGUMENTS {
        let detail = format!(
            "the submit has {arguments} arguments, the limit is {ARGUMENTS}; pass the values in the input"
        );
        return Err((Status::BadRequest, detail));
    }
    Ok(())
}

/// The image of a request: from its frame, or from the blobs of the tenant.
fn image(submit: &mut Submit, blobs: &Blobs) -> Result<Bytes, Refusal> {
    let Some(image) = submit.image.take() else {
        return blobs.get(&submit.hash).ok_or_else(missing_image);
    };
    check_hash(&image, &submit.hash)?;
    blobs.insert(submit.hash, image.clone());
    Ok(image)
}

fn missing_image() -> Refusal {
    let detail = "the node does not have the image; repeat the submit with the image, or send the image with `PutBlob` \
                  first";
    (Status::NotFound, detail.to_owned())
}

fn check_hash(bytes: &[u8], hash: &Hash) -> Result<(), Refusal> {
    if blake3::hash(bytes).as_bytes() == hash {
        return Ok(());
    }
    let detail = "the image does not have the stated hash; state the BLAKE3 hash of its bytes";
    Err((Status::BadRequest, detail.into()))
}

async fn reply_with(send: &mut SendStream, reply: Reply) -> Result<(), End> {
    send_bytes(send, &mut [reply.frame, reply.following]).await?;
    _ = send.finish();
    Ok(())
}

/// Serves the stream of a blob. The lease needs no session. The request comes with the memory of its frame.
pub(super) async fn put_blob(
    leases: &Arc<Leases>,
    client: &Client,
    connection: &Connection,
    (put, frame): (PutBlob, Option<Reserved>),
    mut send: SendStream,
    mut receive: FrameStream,
) -> Result<(), End> {
    let PutBlob { lease, token, hash, bytes } = put;
    let target = leases.blobs(client, lease, &token).await.and_then(|target| {
        let limit = leases.blob_limit();
        if bytes > limit {
            let detail =
                format!("the image has {bytes} bytes, the limit is {limit}; send a smaller module");
            return Err((Status::TooLarge, detail));
        }
        Ok(target)
    });
    let (blobs, session) = match target {
        // A token that is valid has few bytes.
        Ok(target) => {
            drop(frame);
            target
        }
        Err((status, detail)) => {
            drop((token, frame));
            client.account.request().await;
            refuse(&mut send, status, &detail).await;
            return Ok(());
        }
    };
    // Before the wait for memory: the bytes that wait would fill a narrow window, and keep requests from arriving.
    connection.widen(leases, client);
    let read = async {
        let upload = blobs.uploads().begin(bytes).await;
        let image = tokio::select! {
            image = receive.read_raw(bytes as usize) => image?,
            () = upload.gives_way() => return Err(gave_way()),
        };
        Ok::<_, End>((Bytes::from(image), upload))
    };
    let (image, _upload) = tokio::select! {
        read = read => match read {
            Ok(read) => read,
            Err(end) => {
                let (status, detail) = not_read(end)?;
                // Frees the part of the connection's window that the bytes of the upload have.
                drop(receive);
                client.account.request().await;
                refuse(&mut send, status, &detail).await;
                return Ok(());
            }
        },
        // An upload that does not end would keep its memory from other leases of the tenant.
        () = leases.ended(lease) => {
            let (status, detail) = end_of_lease(leases.blobs(client, lease, &token).await.err());
            refuse(&mut send, status, &detail).await;
            return Ok(());
        }
    };
    // The hash of 64 MiB takes tens of milliseconds.
    let hashed = image.clone();
    let checked = tokio::task::spawn_blocking(move || check_hash(&hashed, &hash));
    let checked = checked.await.map_err(|error| End::Connection(error.to_string()))?;
    if let Err((status, detail)) = checked {
        refuse(&mut send, status, &detail).await;
        return Ok(());
    }
    match session {
        Some(session) => session.blob_arrived(hash, image),
        None => blobs.insert(hash, image),
    }
    send_reply(&mut send, PutBlob::OPCODE | REPLY, 0, |_| {}, Bytes::new()).await?;
    _ = send.finish();
    Ok(())
}
