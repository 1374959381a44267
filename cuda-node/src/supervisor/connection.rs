//! One connection of a client: its request stream, and the first frames of its other streams.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use cuda_core::protocol::Status;
use cuda_lease::wire::{
    Allocate, Attach, Confirm, Free, Hello, Inventory, InventoryReply, Lane, LeaseRequest, PutBlob,
    Refused, Renew, Submit, VERSION, Welcome, WireError, features, opcode::REPLY,
};
use quinn::{RecvStream, SendStream};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{
    counted::Counted,
    leases::{Client, Leases},
    streams::{End, FrameStream, Refusal, disconnect, refuse, send_reply},
    submit,
    wide_connections::Width,
};

/// The time within which a client sends the first frame of a stream.
const FIRST_FRAME: Duration = Duration::from_secs(5);

/// The time between two readings of the round trip of a connection, and between two attempts to widen it.
const ROUND_TRIP: Duration = Duration::from_secs(1);

/// The requests of a connection that may wait for their replies at a time.
const OUTSTANDING: usize = 64;

/// The longest frame of the request stream, in bytes. A request has a token, a name and some numbers.
const REQUEST_BYTES: u32 = 4 << 10;

/// A connection of a client.
pub(super) struct Connection {
    connection: quinn::Connection,
    width: Arc<Width>,
    /// The requests that are being answered. Locked while the connection has a request stream.
    requests: tokio::sync::Mutex<JoinSet<()>>,
}

impl Connection {
    fn new(connection: quinn::Connection) -> Self {
        let width = Width::new(connection.clone());
        Self { connection, width, requests: Default::default() }
    }

    /// A stream of the connection uses memory of a lease. While the tenant has enough wide connections, this one stays as
    /// it is, and the stream is slower.
    pub(super) fn widen(&self, leases: &Leases, client: &Client) {
        self.width.want(false);
        self.widen_if_possible(leases, client);
    }

    /// As [`widen`](Self::widen), for a lane of a session.
    fn widen_for_session(&self, leases: &Leases, client: &Client) {
        self.width.want(true);
        self.widen_if_possible(leases, client);
    }

    fn widen_if_possible(&self, leases: &Leases, client: &Client) {
        client.account.wide.widen(&self.width, || leases.count_of(&client.tenant));
    }
}

/// Serves a connection until it ends. Returns its place among the wide connections, which it has until its memory is free.
pub(super) async fn serve(
    leases: Arc<Leases>,
    client: Client,
    connection: quinn::Connection,
) -> Option<Counted> {
    let metrics = leases.metrics().clone();
    let _connected = metrics.connected();
    let rtt = connection.clone();
    let measure = || metrics.record(rtt.rtt(), |latencies| &mut latencies.session.wire);
    let mut round_trips = tokio::time::interval_at(Instant::now() + ROUND_TRIP, ROUND_TRIP);
    let connection = Arc::new(Connection::new(connection));
    // When the connection ends, so do the tasks of its streams.
    let mut streams = JoinSet::new();
    loop {
        let (send, receive) = tokio::select! {
            accepted = connection.connection.accept_bi() => match accepted {
                Ok(stream) => stream,
                Err(_) => break,
            },
            Some(ended) = streams.join_next() => match ended {
                Ok(Err(end @ (End::Broken(_) | End::Stalled))) => {
                    disconnect(&connection.connection, &end.to_string());
                    break;
                }
                _ => continue,
            },
            _ = round_trips.tick() => {
                measure();
                connection.widen_if_possible(&leases, &client);
                continue;
            }
        };
        let (leases, client, connection) = (leases.clone(), client.clone(), connection.clone());
        streams
            .spawn(async move { serve_stream(&leases, &client, &connection, send, receive).await });
    }
    // A connection of less than a second counts too.
    measure();
    // First the tasks: one of them could still give this connection a lease.
    streams.shutdown().await;
    connection.requests.lock().await.shutdown().await;
    leases.disconnected(client.connection);
    connection.width.take_place()
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
    connection: &Connection,
    mut send: SendStream,
    receive: RecvStream,
) -> Result<(), End> {
    let mut receive = FrameStream::new(receive);
    let memory = client.account.frame_memory().await;
    let first = receive.next(|frame| {
        Ok(match frame.header.opcode {
            Hello::OPCODE => First::Hello(Hello::decode(frame.body)?, frame.header.sequence),
            Attach::OPCODE => First::Attach(Attach::decode(frame.body)?),
            PutBlob::OPCODE => First::PutBlob(PutBlob::decode(frame.body)?),
            Submit::OPCODE => First::Submit(Submit::decode(frame.body)?.into()),
            opcode => return Err(WireError::UnexpectedOpcode { opcode }.into()),
        })
    });
    let Ok(first) = tokio::time::timeout(FIRST_FRAME, first).await else {
        let secs = FIRST_FRAME.as_secs();
        let detail = format!("the first frame of the stream has not arrived within {secs} s");
        refuse(&mut send, Status::BadRequest, &detail).await;
        return Err(End::Refused(Status::BadRequest, detail));
    };
    let first = first?;
    receive.release();
    match first {
        First::Hello(hello, id) => {
            let (greeting, shared) = (greet(&hello, client), hello.features & features::ALL);
            drop((hello, memory));
            let Ok(mut requests) = connection.requests.try_lock() else {
                let detail = "the connection has a request stream; send the requests there";
                refuse(&mut send, Status::BadRequest, detail).await;
                return Err(End::Refused(Status::BadRequest, detail.into()));
            };
            receive.set_limit(REQUEST_BYTES);
            let served = serve_requests(
                leases,
                client,
                (greeting, id),
                shared,
                &mut requests,
                (send, receive),
            )
            .await;
            requests.shutdown().await;
            served
        }
        First::Attach(attach) => {
            let session = leases.session(client, attach.lease, &attach.token, attach.epoch).await;
            let kept = match session {
                Ok(session) => {
                    let kept = leases.keep_session(client, attach.lease, &session).await;
                    kept.map(|()| session)
                }
                Err(refusal) => Err(refusal),
            };
            match kept {
                Ok(session) => {
                    drop(memory);
                    let _session =
                        (attach.lane == Lane::Commands).then(|| connection.width.serve_session());
                    connection.widen_for_session(leases, client);
                    if attach.is_resumed && attach.lane == Lane::Commands {
                        leases.metrics().resumed();
                    }
                    let resume = attach.is_resumed.then_some(attach.received);
                    session.serve(attach.lane, send, receive, resume).await
                }
                Err((status, detail)) => {
                    client.account.request().await;
                    refuse(&mut send, status, &detail).await;
                    Err(End::Refused(status, detail))
                }
            }
        }
        First::PutBlob(put) => {
            let _stream = connection.width.serve_stream();
            submit::put_blob(leases, client, connection, (put, memory), send, receive).await
        }
        // The frame has the image, so its memory stays until the submit is admitted or refused.
        First::Submit(submit) => {
            let _stream = connection.width.serve_stream();
            submit::serve(leases, client, connection, (*submit, memory), send, receive).await
        }
    }
}

/// A reply: its opcode and its body.
type Reply = Result<(u16, Vec<u8>), Refusal>;

/// Greets the client, then answers its requests. Requests do not wait for each other. `shared` are the features that both
/// sides have.
async fn serve_requests(
    leases: &Arc<Leases>,
    client: &Client,
    (greeting, id): (Reply, u64),
    shared: u64,
    waiting: &mut JoinSet<()>,
    (mut send, mut receive): (SendStream, FrameStream),
) -> Result<(), End> {
    let is_supported = greeting.is_ok();
    reply(&mut send, id, greeting).await?;
    if !is_supported {
        return Ok(());
    }
    let (answers, mut answered) = mpsc::channel(OUTSTANDING);
    loop {
        tokio::select! {
            request = receive.next(|frame| Ok((frame.header.sequence, frame.header.opcode, frame.body.to_vec()))) => {
                let (id, opcode, body) = request?;
                let request = LeaseRequest::decode(opcode, &body)?;
                if waiting.len() >= OUTSTANDING {
                    let detail = format!(
                        "the connection has {OUTSTANDING} unanswered requests, which is the limit; repeat the request \
                         after the next reply"
                    );
                    client.account.request().await;
                    reply(&mut send, id, Err((Status::CapacityExceeded, detail))).await?;
                    continue;
                }
                let (leases, client, answers) = (leases.clone(), client.clone(), answers.clone());
                waiting.spawn(async move {
                    client.account.request().await;
                    let answer = answer(request, shared, &leases, &client).await;
                    _ = answers.send((id, answer)).await;
                });
            }
            Some((id, answer)) = answered.recv() => reply(&mut send, id, answer).await?,
            Some(_) = waiting.join_next() => {}
        }
    }
}

fn greet(hello: &Hello, client: &Client) -> Reply {
    if hello.oldest > VERSION || hello.newest < VERSION {
        let (oldest, newest) = (hello.oldest, hello.newest);
        let detail = format!(
            "the client supports protocol versions {oldest} to {newest}, this node supports {VERSION}; update the \
             older program"
        );
        return Err((Status::UnsupportedVersion, detail));
    }
    let node = concat!("cuda-node ", env!("CARGO_PKG_VERSION")).to_owned();
    let mut body = Vec::new();
    let features = hello.features & features::ALL;
    let left = |end: SystemTime| end.duration_since(SystemTime::now()).unwrap_or_default();
    let left = client.certificate_ends.map(|end| left(end).as_millis());
    let certificate_ends_in_ms = left.map(|left| left.try_into().unwrap_or(u64::MAX));
    Welcome { version: VERSION, features, node, certificate_ends_in_ms }.encode(&mut body);
    Ok((Welcome::OPCODE, body))
}

/// Answers a request. `shared` are the features that both sides have.
async fn answer(
    request: LeaseRequest,
    shared: u64,
    leases: &Arc<Leases>,
    client: &Client,
) -> Reply {
    let mut out = Vec::new();
    let opcode = match request {
        LeaseRequest::Allocate(request) => {
            let confirms = shared & features::CONFIRM != 0;
            leases.allocate(client, request, confirms).await?.encode(&mut out);
            Allocate::OPCODE
        }
        LeaseRequest::Renew(Renew { lease, token, lease_secs }) => {
            leases.renew(client, lease, &token, lease_secs).await?.encode(&mut out);
            Renew::OPCODE
        }
        LeaseRequest::Free(Free { lease, token }) => {
            leases.free(client, lease, &token).await?;
            Free::OPCODE
        }
        LeaseRequest::Confirm(Confirm { lease, token }) => {
            leases.confirm(client, lease, &token).await?;
            Confirm::OPCODE
        }
        LeaseRequest::Inventory => {
            let reply: InventoryReply = leases.inventory(client);
            reply.encode(&mut out);
            Inventory::OPCODE
        }
    };
    Ok((opcode | REPLY, out))
}

async fn reply(send: &mut SendStream, id: u64, reply: Reply) -> Result<(), End> {
    let (opcode, body) = reply.unwrap_or_else(|(status, detail)| {
        let mut body = Vec::new();
        Refused { status, detail }.encode(&mut body);
        (Refused::OPCODE, body)
    });
    send_reply(send, opcode, id, |out| out.extend_from_slice(&body), Bytes::new()).await
}
