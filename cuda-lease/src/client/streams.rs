//! The streams of a connection: requests about leases and their replies, the commands and events of a session, and
//! code. `connection` and `submit` open them.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    time::Duration,
};

use bytes::Bytes;
use cuda_core::{
    Error,
    internals::text_prefix,
    protocol::{Notice, Status},
};
use quinn::{RecvStream, SendStream};
use tokio::sync::{Notify, mpsc, oneshot};

use super::{
    end::{End, Refusal},
    link::Link,
};
use crate::{
    session::{Incoming, Outgoing, SessionError},
    wire::{
        Ack, Attach, Attached, Chunk, Event, Frame, FrameBuffer, Hash, Hello, Lane, PutBlob,
        Refused, VERSION, Welcome, WireError, features, opcode, put_frame,
    },
};

/// The packets that one read takes at most.
const PACKETS: usize = 64;

/// The time in which a node answers a greeting.
const GREETING: Duration = Duration::from_secs(5);

/// The longest error of a submission, in bytes: one with the longest text that a node writes, which its message has too. A
/// stream keeps those of thousands of submissions.
const LONGEST_FAILURE: usize = 66 << 10;

/// A request to the node.
pub(super) struct OutgoingRequest {
    pub(super) opcode: u16,
    pub(super) body: Vec<u8>,
    pub(super) reply: oneshot::Sender<Result<Bytes, Refusal>>,
}

/// Requests that were sent and not answered. They are sent again on the next connection: a repeated request has the
/// same result and no second effect.
#[derive(Default)]
pub(super) struct Unanswered {
    next: u64,
    requests: VecDeque<(u64, OutgoingRequest)>,
}

/// The request stream of one connection.
pub(super) struct RequestStream {
    send: SendStream,
    /// The bytes of requests that are not sent yet. A node may read none.
    unsent: Vec<u8>,
    receive: RecvStream,
    buffer: FrameBuffer,
    /// The features that both sides have, as in [`features`].
    pub(super) features: u64,
    /// The time from the greeting until the certificate of this client expires.
    pub(super) certificate_ends_in: Option<Duration>,
}

impl RequestStream {
    /// Opens the stream and greets the node.
    pub(super) async fn open(connection: &quinn::Connection) -> Result<Self, End> {
        let silent = |_| End::Lost(unanswered("the greeting", GREETING));
        tokio::time::timeout(GREETING, Self::greet(connection)).await.map_err(silent)?
    }

    async fn greet(connection: &quinn::Connection) -> Result<Self, End> {
        let (send, receive) = connection.open_bi().await?;
        let (buffer, features, certificate_ends_in) = (FrameBuffer::default(), 0, None);
        let unsent = Vec::new();
        let mut opened = Self { send, unsent, receive, buffer, features, certificate_ends_in };
        let program = concat!("cuda-lease ", env!("CARGO_PKG_VERSION")).to_owned();
        let hello = Hello { oldest: VERSION, newest: VERSION, features: features::ALL, program };
        let mut body = Vec::new();
        hello.encode(&mut body);
        let reply = opened.ask(Hello::OPCODE, &body).await?;
        let reply = reply.map_err(|(status, detail)| End::Refused(status, detail))?;
        let Welcome { version, features, certificate_ends_in_ms, .. } = Welcome::decode(&reply)?;
        if version != VERSION {
            let detail = format!(
                "the node speaks version {version} of the protocol, this client speaks {VERSION}; update the older program"
            );
            return Err(End::Refused(Status::UnsupportedVersion, detail));
        }
        opened.features = features;
        opened.certificate_ends_in = certificate_ends_in_ms.map(Duration::from_millis);
        Ok(opened)
    }

    /// Sends one request and waits for its reply.
    pub(super) async fn ask(
        &mut self,
        opcode: u16,
        body: &[u8],
    ) -> Result<Result<Bytes, Refusal>, End> {
        self.put(opcode, 0, body);
        while !self.unsent.is_empty() {
            write_some(&mut self.send, &mut self.unsent).await?;
        }
        loop {
            let reply = read(&mut self.receive, &mut self.buffer).await?;
            // The ids of other requests begin at 1.
            if reply.sequence == 0 {
                return Ok(reply.to(opcode)?);
            }
        }
    }

    fn put(&mut self, opcode: u16, id: u64, body: &[u8]) {
        put_frame(&mut self.unsent, opcode, 0, id, |out| out.extend_from_slice(body));
    }

    fn begin(&mut self, unanswered: &mut Unanswered, request: OutgoingRequest) {
        unanswered.next += 1;
        self.put(request.opcode, unanswered.next, &request.body);
        unanswered.requests.push_back((unanswered.next, request));
    }

    /// Carries out requests until the connection ends, or until all senders of requests are dropped. `answered` gets the
    /// opcode of each request that the node has carried out, and the body of the reply, also if no one waits for it.
    pub(super) async fn serve(
        &mut self,
        unanswered: &mut Unanswered,
        requests: &mut mpsc::UnboundedReceiver<OutgoingRequest>,
        renewals: &mut mpsc::UnboundedReceiver<OutgoingRequest>,
        answered: impl Fn(u16, &Bytes),
    ) -> Result<(), End> {
        for (id, request) in &unanswered.requests {
            self.put(request.opcode, *id, &request.body);
        }
        loop {
            let Self { send, unsent, receive, buffer, .. } = self;
            tokio::select! {
                written = write_some(send, unsent), if !unsent.is_empty() => written?,
                request = requests.recv() => {
                    let Some(request) = request else { return Ok(()) };
                    self.begin(unanswered, request);
                }
                Some(request) = renewals.recv() => self.begin(unanswered, request),
                reply = read(receive, buffer) => {
                    let reply = reply?;
                    let is_of = |(id, _): &(u64, _)| *id == reply.sequence;
                    let found = unanswered.requests.iter().position(is_of);
                    if let Some((_, request)) = found.and_then(|at| unanswered.requests.remove(at)) {
                        let reply = reply.to(request.opcode)?;
                        if let Ok(body) = &reply {
                            answered(request.opcode, body);
                        }
                        _ = request.reply.send(reply);
                    }
                }
            }
        }
    }
}

/// Sends some of the bytes, and removes them. Cancelling this loses nothing.
async fn write_some(send: &mut SendStream, bytes: &mut Vec<u8>) -> Result<(), End> {
    let written = send.write(bytes).await?;
    bytes.drain(..written);
    Ok(())
}

/// Reads the next reply. Cancelling this loses nothing.
async fn read(receive: &mut RecvStream, buffer: &mut FrameBuffer) -> Result<Reply, End> {
    next_reply(receive, buffer).await?.ok_or(End::Closed)
}

/// A reply of the node.
pub(super) struct Reply {
    /// The sequence number of the frame. On the request stream, it is the id of the request.
    sequence: u64,
    /// The opcode and the body, or a refusal.
    pub(super) content: Result<(u16, Bytes), Refusal>,
}

impl Reply {
    /// Returns the body of the reply to a request with this opcode, or its refusal.
    ///
    /// # Errors
    /// The opcode is that of another reply.
    pub(super) fn to(self, request: u16) -> Result<Result<Bytes, Refusal>, WireError> {
        match self.content {
            Ok((opcode, _)) if opcode != request | opcode::REPLY => {
                Err(WireError::UnexpectedOpcode { opcode })
            }
            content => Ok(content.map(|(_, body)| body)),
        }
    }
}

/// The cause of an error: the node has not answered `what` in this time.
pub(super) fn unanswered(what: &str, within: Duration) -> String {
    format!("the node has not answered {what} within {} s", within.as_secs())
}

/// Reads the next reply. Returns `None` at the end of the stream. Cancelling this loses nothing.
pub(super) async fn next_reply(
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

/// The maximum number of times that a blob is sent. A node ends the slow upload of a tenant that has much of its memory
/// while another one waits for it. A session whose blob is refused is lost.
const BLOB_SENDS: usize = 8;

/// The pause before a blob is sent again: the node may have no memory at the moment.
const BLOB_PAUSE: Duration = Duration::from_millis(500);

/// Sends a blob, and waits until the node has it. The inner error is a refusal of the node.
pub(super) async fn put_blob(
    connection: &quinn::Connection,
    lease: u64,
    token: Bytes,
    hash: Hash,
    image: Bytes,
) -> Result<Result<(), Refusal>, End> {
    let put = PutBlob { lease, token, hash, bytes: image.len() as u64 };
    let mut sent = send_blob(connection, &put, image.clone()).await?;
    for _ in 1..BLOB_SENDS {
        if !matches!(sent, Err((Status::CapacityExceeded, _))) {
            break;
        }
        tokio::time::sleep(BLOB_PAUSE).await;
        sent = send_blob(connection, &put, image.clone()).await?;
    }
    Ok(sent)
}

async fn send_blob(
    connection: &quinn::Connection,
    put: &PutBlob,
    image: Bytes,
) -> Result<Result<(), Refusal>, End> {
    let (mut send, mut receive) = connection.open_bi().await?;
    let mut out = Vec::new();
    put_frame(&mut out, PutBlob::OPCODE, 0, 0, |out| put.encode(out));
    // A node that refuses stops the stream, and its reply has the reason.
    if send.write_all(&out).await.is_ok() && send.write_chunk(image).await.is_ok() {
        _ = send.finish();
    }
    let reply = next_reply(&mut receive, &mut FrameBuffer::default()).await?;
    let reply = reply.ok_or(WireError::Truncated { missing: 1 })?;
    Ok(reply.to(PutBlob::OPCODE)?.map(drop))
}

/// The incoming sequences of a session. They outlive connections.
pub(super) struct Received {
    commands: RefCell<Incoming>,
    bulk: RefCell<Incoming>,
}

impl Received {
    pub(super) fn new(epoch: u32) -> Self {
        let new = || RefCell::new(Incoming::new(epoch));
        Self { commands: new(), bulk: new() }
    }

    fn of(&self, lane: Lane) -> &RefCell<Incoming> {
        match lane {
            Lane::Commands => &self.commands,
            Lane::Bulk => &self.bulk,
        }
    }
}

/// One lane on one connection.
pub(super) struct LaneStream {
    lane: Lane,
    /// The acknowledgement to send next, or 0.
    acknowledge: Cell<u64>,
    send: tokio::sync::Mutex<SendStream>,
    receive: tokio::sync::Mutex<(RecvStream, FrameBuffer)>,
}

/// The access to a lease that every first frame states.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) lease: u64,
    pub(super) token: Bytes,
    pub(super) epoch: u32,
}

impl LaneStream {
    /// Opens a lane. A resumed one waits for the node, which says how much it has received.
    pub(super) async fn open(
        connection: &quinn::Connection,
        access: &Access,
        lane: Lane,
        is_resumed: bool,
        received: &Received,
        link: &Link,
    ) -> Result<Self, End> {
        let (mut send, receive) = connection.open_bi().await?;
        if lane == Lane::Commands {
            // A launch goes before bulk data.
            _ = send.set_priority(1);
        }
        let received = received.of(lane).borrow().received();
        let Access { lease, token, epoch } = access.clone();
        let attach = Attach { lease, token, lane, epoch, is_resumed, received };
        let mut out = Vec::new();
        put_frame(&mut out, Attach::OPCODE, 0, 0, |out| attach.encode(out));
        send.write_all(&out).await?;
        let mut opened = Self {
            lane,
            acknowledge: Cell::new(0),
            send: tokio::sync::Mutex::new(send),
            receive: tokio::sync::Mutex::new((receive, FrameBuffer::default())),
        };
        if is_resumed {
            let attached = opened.attached().await?;
            with_outgoing(link, lane, |outgoing| outgoing.resume(attached.received))?;
        }
        Ok(opened)
    }

    /// Waits for the reply to [`Attach`].
    async fn attached(&mut self) -> Result<Attached, End> {
        let (receive, buffer) = self.receive.get_mut();
        let reply = next_reply(receive, buffer).await?.ok_or(End::Closed)?;
        match reply.to(Attach::OPCODE)? {
            Ok(body) => Ok(Attached::decode(&body)?),
            Err((status, detail)) => Err(End::Refused(status, detail)),
        }
    }

    /// Sends frames until the connection ends.
    pub(super) async fn send(&self, link: &Link) -> Result<(), End> {
        let mut stream = self.send.lock().await;
        loop {
            let acknowledge = self.acknowledge.take();
            if acknowledge > 0 {
                let mut out = Vec::new();
                put_frame(&mut out, Ack::OPCODE, 0, 0, |out| {
                    Ack { received: acknowledge }.encode(out);
                });
                stream.write_chunk(out.into()).await?;
            }
            let frames = match self.lane {
                Lane::Commands => link.take_commands(),
                Lane::Bulk => link.take_bulk(),
            };
            match frames {
                Some(frames) => stream.write_chunk(frames).await?,
                None => self.wake(link).notified().await,
            }
        }
    }

    fn wake<'a>(&self, link: &'a Link) -> &'a Notify {
        match self.lane {
            Lane::Commands => &link.send_commands,
            Lane::Bulk => &link.send_bulk,
        }
    }

    /// Receives frames until the connection ends. Calls `need` for each blob that the node does not have.
    pub(super) async fn receive(
        &self,
        link: &Link,
        received: &Received,
        need: impl Fn(Hash),
    ) -> Result<(), End> {
        let mut guard = self.receive.lock().await;
        let (stream, buffer) = &mut *guard;
        loop {
            for frame in buffer.take()?.iter() {
                self.frame(link, received, &frame, &need)?;
            }
            let incoming = received.of(self.lane);
            if let Some(sequence) = incoming.borrow_mut().acknowledgement() {
                self.acknowledge.set(sequence);
                self.wake(link).notify_one();
            }
            // A chunk is the content of one packet.
            let mut chunks = [const { Bytes::new() }; PACKETS];
            match stream.read_chunks(&mut chunks).await? {
                Some(count) => chunks[..count].iter().for_each(|chunk| buffer.extend(chunk)),
                None => return Err(End::Closed),
            }
        }
    }

    fn frame(
        &self,
        link: &Link,
        received: &Received,
        frame: &Frame<'_>,
        need: &impl Fn(Hash),
    ) -> Result<(), End> {
        match frame.header.opcode {
            Ack::OPCODE => {
                let ack = Ack::decode(frame.body)?;
                with_outgoing(link, self.lane, |outgoing| outgoing.acknowledge(ack.received))?;
                self.wake(link).notify_one();
                return Ok(());
            }
            Attached::OPCODE => return Ok(()),
            Refused::OPCODE => return Err(refused(frame)),
            _ => {}
        }
        // Frames without a number are those of the supervisor. It repeats them on each connection.
        if frame.header.sequence == 0 && self.lane == Lane::Commands {
            let event = Event::decode(frame.header.opcode, frame.body)?;
            let is_own = matches!(
                event,
                Event::NeedBlob { .. } | Event::Ending { .. } | Event::Notice(Notice::Lost { .. })
            );
            if !is_own {
                return Err(
                    SessionError::Command("an event of the worker has no number".into()).into()
                );
            }
            if let Some(hash) = link.event(event)? {
                need(hash);
            }
            return Ok(());
        }
        // Before the frame is handled: a waker that panics must not make it arrive twice.
        if !received.of(self.lane).borrow_mut().accept(&frame.header)? {
            return Ok(());
        }
        if frame.header.opcode == Chunk::OPCODE {
            link.chunk(&Chunk::decode(frame.body)?)?;
        } else if let Some(hash) = link.event(numbered_event(frame)?)? {
            need(hash);
        }
        Ok(())
    }
}

/// Decodes an event of the worker. A long error of a submission becomes the start of its message.
fn numbered_event(frame: &Frame<'_>) -> Result<Event, WireError> {
    Ok(match Event::decode(frame.header.opcode, frame.body)? {
        Event::Notice(Notice::Failed { ticket, error }) if frame.body.len() > LONGEST_FAILURE => {
            let detail = text_prefix(&error.to_string(), LONGEST_FAILURE).to_owned();
            let error = Error::Host { what: "an error of the node".into(), detail };
            Notice::Failed { ticket, error }.into()
        }
        event => event,
    })
}

fn with_outgoing<T>(link: &Link, lane: Lane, with: impl FnOnce(&mut Outgoing) -> T) -> T {
    match lane {
        Lane::Commands => with(&mut link.commands.lock().outgoing),
        Lane::Bulk => with(&mut link.bulk.lock().outgoing),
    }
}

fn refused(frame: &Frame<'_>) -> End {
    match Refused::decode(frame.body) {
        Ok(refused) => End::Refused(refused.status, refused.detail),
        Err(error) => End::Broken(error.into()),
    }
}
