//! The lanes of a session on one connection.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use quinn::{RecvStream, SendStream};
use tokio::sync::Notify;

use super::replies::next_reply;
use crate::{
    client::{end::End, link::Link},
    session::{Incoming, Outgoing},
    wire::{
        Ack, Attach, Attached, Chunk, Event, Frame, FrameBuffer, Hash, Lane, Refused, WireError,
        put_frame,
    },
};

/// Received bytes are acknowledged in steps of this size.
const ACKNOWLEDGE: usize = 256 << 10;

/// The packets that one read takes at most.
const PACKETS: usize = 64;

/// The incoming sequences of a session. They outlive connections.
pub(in crate::client) struct Received {
    pub(super) commands: RefCell<Incoming>,
    pub(super) bulk: RefCell<Incoming>,
}

impl Received {
    pub(in crate::client) fn new(epoch: u32) -> Self {
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
pub(in crate::client) struct LaneStream {
    lane: Lane,
    /// The acknowledgement to send next, or 0.
    acknowledge: Cell<u64>,
    send: tokio::sync::Mutex<SendStream>,
    receive: tokio::sync::Mutex<(RecvStream, FrameBuffer)>,
}

/// The access to a lease that every first frame states.
#[derive(Clone)]
pub(in crate::client) struct Access {
    pub(in crate::client) lease: u64,
    pub(in crate::client) token: Bytes,
    pub(in crate::client) epoch: u32,
}

impl LaneStream {
    /// Opens a lane. A resumed one waits for the node, which says how much it has received.
    pub(in crate::client) async fn open(
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
        match reply.content {
            Ok((Attached::OPCODE, body)) => Ok(Attached::decode(&body)?),
            Ok((opcode, _)) => Err(WireError::UnexpectedOpcode { opcode }.into()),
            Err((status, detail)) => Err(End::Refused(status, detail)),
        }
    }

    /// Sends frames until the connection ends.
    pub(in crate::client) async fn send(&self, link: &Link) -> Result<(), End> {
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
    pub(in crate::client) async fn receive(
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
            if let Some(sequence) = incoming.borrow_mut().acknowledgement(ACKNOWLEDGE) {
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
        // Before the frame is handled: a waker that panics must not make it arrive twice.
        if !received.of(self.lane).borrow_mut().accept(&frame.header)? {
            return Ok(());
        }
        if frame.header.opcode == Chunk::OPCODE {
            link.chunk(&Chunk::decode(frame.body)?)?;
        } else if let Some(hash) = link.event(Event::decode(frame.header.opcode, frame.body)?) {
            need(hash);
        }
        Ok(())
    }
}

fn with_outgoing<T>(link: &Link, lane: Lane, with: impl FnOnce(&mut Outgoing) -> T) -> T {
    match lane {
        Lane::Commands => with(&mut link.commands.lock()),
        Lane::Bulk => with(&mut link.bulk.lock().outgoing),
    }
}

fn refused(frame: &Frame<'_>) -> End {
    match Refused::decode(frame.body) {
        Ok(refused) => End::Refused(refused.status, refused.detail),
        Err(error) => End::Broken(error.into()),
    }
}
