//! One connection of a client: its streams.

use std::{sync::Arc, time::Duration};

use quinn::{RecvStream, SendStream};

use super::{
    control,
    leases::Leases,
    streams::{End, FrameStream, refuse, send_frame},
};
use crate::wire::{Attach, Hello, PutBlob, WireError, opcode::REPLY};
use cuda_core::protocol::Status;

/// The time within which a client sends the first frame of a stream.
const FIRST_FRAME: Duration = Duration::from_secs(5);

/// Serves a connection until it ends.
pub(super) async fn serve(leases: Arc<Leases>, connection: quinn::Connection) {
    while let Ok((send, receive)) = connection.accept_bi().await {
        let (leases, connection) = (leases.clone(), connection.clone());
        tokio::spawn(async move {
            let end = serve_stream(&leases, send, receive).await;
            if let Err(end @ End::Broken(_)) = end {
                tracing::info!(%end, peer = %connection.remote_address(), "a client was disconnected");
                connection.close(1u32.into(), end.to_string().as_bytes());
            }
        });
    }
}

/// The first frame of a stream.
enum First {
    Hello(Hello, u64),
    Attach(Attach),
    PutBlob(PutBlob),
}

async fn serve_stream(
    leases: &Arc<Leases>,
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
        First::Hello(hello, id) => control::serve(leases, hello, id, send, receive).await,
        First::Attach(attach) => match leases.session(attach.lease, attach.epoch) {
            Ok(session) => {
                let resume = attach.is_resumed.then_some(attach.received);
                session.serve(attach.lane, send, receive, resume).await
            }
            Err((status, detail)) => {
                refuse(&mut send, status, &detail).await;
                Err(End::Refused(status, detail))
            }
        },
        First::PutBlob(put) => put_blob(leases, put, send, receive).await,
    }
}

async fn put_blob(
    leases: &Leases,
    put: PutBlob,
    mut send: SendStream,
    mut receive: FrameStream,
) -> Result<(), End> {
    let Some(session) = leases.running(put.lease) else {
        refuse(&mut send, Status::NotFound, "there is no such lease").await;
        return Ok(());
    };
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
