//! One connection of a client: its streams.

use std::{sync::Arc, time::Duration};

use cuda_lease::{
    internals::transport,
    wire::{Attach, Hello, Lane, PutBlob, Submit, WireError},
};
use quinn::{RecvStream, SendStream};
use tokio::time::Instant;

use super::{
    leases::{Client, Leases},
    requests,
    sessions::session::Session,
    streams::{End, FrameStream, Refusal, refuse},
    submit,
};

/// The time within which a client sends the first frame of a stream.
const FIRST_FRAME: Duration = Duration::from_secs(5);

/// The time between two readings of the round trip of a connection.
const ROUND_TRIP: Duration = Duration::from_secs(1);

/// Serves a connection until it ends.
pub(super) async fn serve(leases: Arc<Leases>, client: Client, connection: quinn::Connection) {
    let metrics = leases.metrics().clone();
    let _connected = metrics.connected();
    let measure = || metrics.record(connection.rtt(), |latencies| &mut latencies.session.wire);
    let mut round_trips = tokio::time::interval_at(Instant::now() + ROUND_TRIP, ROUND_TRIP);
    // When the connection ends, so do the tasks of its streams.
    let mut streams = tokio::task::JoinSet::new();
    loop {
        let (send, receive) = tokio::select! {
            accepted = connection.accept_bi() => match accepted {
                Ok(stream) => stream,
                Err(_) => break,
            },
            _ = round_trips.tick() => {
                measure();
                continue;
            }
        };
        while streams.try_join_next().is_some() {}
        let (leases, client, connection) = (leases.clone(), client.clone(), connection.clone());
        streams.spawn(async move {
            let end = serve_stream(&leases, &client, send, receive).await;
            if let Err(end @ End::Broken(_)) = end {
                tracing::info!(%end, peer = %connection.remote_address(), "a client was disconnected");
                connection.close(transport::BROKEN, end.to_string().as_bytes());
            }
        });
    }
    // A connection of less than a second counts too.
    measure();
    // First the tasks: one of them could still give this connection a lease.
    streams.shutdown().await;
    leases.disconnected(client.connection);
}

/// The first frame of a stream.
enum First {
    Hello(Hello, u64),
    Attach(Attach),
    PutBlob(PutBlob),
    Submit(Box<Submit>),
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
            Submit::OPCODE => First::Submit(Submit::decode(frame.body)?.into()),
            opcode => return Err(WireError::UnexpectedOpcode { opcode }.into()),
        })
    });
    let first = tokio::time::timeout(FIRST_FRAME, first).await.map_err(|_| End::Closed)??;
    match first {
        First::Hello(hello, id) => {
            requests::serve(leases, client, (hello, id), send, receive).await
        }
        First::Attach(attach) => match session(leases, client, &attach) {
            Ok(session) => {
                if attach.is_resumed && attach.lane == Lane::Commands {
                    leases.metrics().resumed();
                }
                let resume = attach.is_resumed.then_some(attach.received);
                session.serve(attach.lane, send, receive, resume).await
            }
            Err((status, detail)) => {
                refuse(&mut send, status, &detail).await;
                Err(End::Refused(status, detail))
            }
        },
        First::PutBlob(put) => submit::put_blob(leases, client, put, send, receive).await,
        First::Submit(submit) => submit::serve(leases, client, *submit, send, receive).await,
    }
}

fn session(
    leases: &Arc<Leases>,
    client: &Client,
    attach: &Attach,
) -> Result<Arc<Session>, Refusal> {
    leases.session(client, attach.lease, &attach.token, attach.epoch)
}
