//! One connection of a client: its streams.

use std::{sync::Arc, time::Duration};

use quinn::{RecvStream, SendStream};

use super::{
    control,
    leases::{Client, Leases, Refusal},
    session::Session,
    streams::{End, FrameStream, refuse, send_frame},
};
use crate::wire::{Attach, Hello, PutBlob, WireError, opcode::REPLY};
use cuda_core::protocol::Status;

/// The time within which a client sends the first frame of a stream.
const FIRST_FRAME: Duration = Duration::from_secs(5);

/// Serves a connection until it ends.
pub(super) async fn serve(leases: Arc<Leases>, client: Client, connection: quinn::Connection) {
    // When the connection ends, so do the tasks of its streams.
    let mut streams = tokio::task::JoinSet::new();
    while let Ok((send, receive)) = connection.accept_bi().await {
        while streams.try_join_next().is_some() {}
        let (leases, client, connection) = (leases.clone(), client.clone(), connection.clone());
        streams.spawn(async move {
            let end = serve_stream(&leases, &client, send, receive).await;
            if let Err(end @ End::Broken(_)) = end {
                tracing::info!(%end, peer = %connection.remote_address(), "a client was disconnected");
                connection.close(1u32.into(), end.to_string().as_bytes());
            }
        });
    }
    leases.disconnected(client.connection);
}

/// The first frame of a stream.
enum First {
    Hello(Hello, u64),
    Attach(Attach),
    PutBlob(PutBlob),
}

async fn serve_stream(
    leases: &Arc<Leases>,
    client: &Client,
    mut send: SendStream,
    receive: RecvStream,
) -> Result<(), End> {
    let mut receive = FrameStream::new(receive);
    let first = receive.next(|frame| {
        Ok(match frame.header.opcode {
            Hello::OPCODE => First::Hello(Hello::decode(frame.body)?, frame.header.sequence),
            Attach::OPCODE => First::Attach(Attach::decode(frame.body)?),
            PutBlob::OPCODE => First::PutBlob(PutBlob::decode(frame.body)?),
            opcode => return Err(WireError::UnexpectedOpcode { opcode }.into()),
        })
    });
    let first = tokio::time::timeout(FIRST_FRAME, first).await.map_err(|_| End::Closed)??;
    match first {
        First::Hello(hello, id) => control::serve(leases, client, (hello, id), send, receive).await,
        First::Attach(attach) => match session(leases, client, &attach) {
            Ok(session) => {
                let resume = attach.is_resumed.then_some(attach.received);
                session.serve(attach.lane, send, receive, resume).await
            }
            Err((status, detail)) => {
                refuse(&mut send, status, &detail).await;
                Err(End::Refused(status, detail))
            }
        },
        First::PutBlob(put) => put_blob(leases, client, put, send, receive).await,
    }
}

fn session(
    leases: &Arc<Leases>,
    client: &Client,
    attach: &Attach,
) -> Result<Arc<Session>, Refusal> {
    leases.session(client, attach.lease, &attach.token, attach.epoch)
}

async fn put_blob(
    leases: &Arc<Leases>,
    client: &Client,
    put: PutBlob,
    mut send: SendStream,
    mut receive: FrameStream,
) -> Result<(), End> {
    let session = match leases.running(client, put.lease, &put.token) {
        Ok(session) => session,
        Err((status, detail)) => {
            refuse(&mut send, status, &detail).await;
            return Ok(());
        }
    };
    if put.bytes > session.limits().module_bytes {
        let limit = session.limits().module_bytes;
        let detail = format!("the blob has {} bytes; the limit is {limit}", put.bytes);
        refuse(&mut send, Status::CapacityExceeded, &detail).await;
        return Ok(());
    }
    let bytes = receive.read_raw(put.bytes as usize).await?;
    if *blake3::hash(&bytes).as_bytes() != put.hash {
        refuse(&mut send, Status::BadRequest, "the blob has another hash").await;
        return Ok(());
    }
    session.blob_arrived(put.hash, bytes.into());
    send_frame(&mut send, PutBlob::OPCODE | REPLY, 0, |_| {}).await?;
    _ = send.finish();
    Ok(())
}
