//! A session whose client writes its own commands: one stream, and buffers in one lease.

use bytes::Bytes;
use cuda_core::{
    Error, Ticket,
    protocol::{
        AllocId, Control, Graph, GraphId, GraphNode, HostId, HostRegion, NodeChange, Notice,
        Pattern, Region, Reply, Request, StreamId, Work,
    },
};
use cuda_lease::wire::{
    Attached, Chunk, Command, Content, Event, Lane, Step, TransferId, decode_changes,
    encode_changes, encode_graph, put_frame,
};

use crate::raw::{RawClient, Stream};

pub const STREAM: StreamId = StreamId(1);

/// A session, with the frames that it has sent on the lane of commands.
pub struct Session {
    pub client: RawClient,
    commands: Stream,
    lease: u64,
    token: Bytes,
    sent: Vec<(u16, Vec<u8>)>,
    received: u64,
    /// The number of the last submission.
    last: u64,
    transfers: u64,
}

/// Submissions that failed, in their order.
pub type Failures = Vec<(Ticket, Error)>;

pub fn region(alloc: u64, offset: u64) -> Region {
    Region { alloc: AllocId(alloc), offset }
}

pub fn node(work: Work<'static>, after: &[u32]) -> GraphNode {
    GraphNode { work, after: after.to_vec(), name: None }
}

/// The block of an upload: each length and first byte has its own.
fn block(bytes: &[u8]) -> HostId {
    HostId(bytes.len() as u64 * 256 + u64::from(bytes[0]))
}

/// An upload. The bytes are passed to [`content_with`] or [`changes_with`].
pub fn write(alloc: u64, bytes: &[u8]) -> Work<'static> {
    let from = HostRegion { block: block(bytes), offset: 0 };
    Work::Upload { from, to: region(alloc, 0), bytes: bytes.len() as u64 }
}

pub fn fill(alloc: u64, value: u32, count: u64) -> Work<'static> {
    Work::Fill { to: region(alloc, 0), pattern: Pattern::Word(value), count }
}

pub fn copy(from: Region, to: Region, bytes: u64) -> Work<'static> {
    Work::Copy { from, to, bytes }
}

/// The content of a graph.
pub fn content(nodes: &[GraphNode]) -> Vec<u8> {
    content_with(nodes, &[])
}

/// The content of a graph with uploads of these bytes.
pub fn content_with(nodes: &[GraphNode], uploads: &[&[u8]]) -> Vec<u8> {
    let graph = Graph { nodes: nodes.to_vec(), host: Vec::new() };
    let blocks: Vec<_> = uploads.iter().map(|upload| (block(upload), *upload)).collect();
    let mut content = Vec::new();
    encode_graph(&graph, &blocks, "lease", &mut content).unwrap();
    content
}

/// The content of a launch, with uploads of these bytes.
pub fn changes_with(changes: &[NodeChange<'_>], uploads: &[&[u8]]) -> Vec<u8> {
    let blocks: Vec<_> = uploads.iter().map(|upload| (block(upload), *upload)).collect();
    let mut content = Vec::new();
    encode_changes(changes, &blocks, "lease", &mut content).unwrap();
    assert_eq!(decode_changes(&content).unwrap().len(), changes.len());
    content
}

impl Session {
    /// Acquires a lease, and creates a stream and buffers of these sizes, with the ids 1, 2 and so on.
    pub async fn open(address: &str, buffers: &[u64]) -> Self {
        let mut client = RawClient::connect(address).await;
        let granted = client.allocate().await;
        let (lease, token) = (granted.lease, granted.token);
        let (commands, reply) = client.attach(lease, token.clone(), Lane::Commands).await;
        assert_eq!(reply.unwrap().0, Attached::OPCODE);
        let mut session = Self {
            client,
            commands,
            lease,
            token,
            sent: Vec::new(),
            received: 0,
            last: 0,
            transfers: 0,
        };
        session.send(Command::Control(Control::CreateStream { id: STREAM, priority: 0 })).await;
        for (index, bytes) in buffers.iter().enumerate() {
            let (id, at) = (AllocId(index as u64 + 1), session.next());
            session.send(Command::Control(Control::Allocate { id, bytes: *bytes, at })).await;
        }
        session
    }

    /// Loses the connection and resumes the session on another one. Sends all frames again, as if none had been
    /// acknowledged.
    pub async fn reconnect(&mut self, address: &str) {
        self.client.connection.close(0u32.into(), b"");
        self.client = RawClient::connect(address).await;
        let token = self.token.clone();
        let (commands, reply) =
            self.client.resume(self.lease, token, Lane::Commands, self.received).await;
        assert_eq!(reply.unwrap().0, Attached::OPCODE);
        self.commands = commands;
        for (index, (opcode, body)) in self.sent.iter().enumerate() {
            let sequence = index as u64 + 1;
            self.commands.frame(*opcode, 1, sequence, |out| out.extend_from_slice(body)).await;
        }
    }

    fn next(&mut self) -> Ticket {
        self.last += 1;
        Ticket { stream: STREAM, number: self.last }
    }

    /// Sends a command. Returns the bytes of its frame.
    pub async fn send(&mut self, command: Command<'_>) -> usize {
        self.send_all([command]).await
    }

    /// Sends commands in one write. Returns the bytes of their frames. QUIC needs much longer for many small writes.
    pub async fn send_all<'a>(&mut self, commands: impl IntoIterator<Item = Command<'a>>) -> usize {
        let mut frames = Vec::new();
        for command in commands {
            let mut body = Vec::new();
            command.encode(&mut body);
            let sequence = self.sent.len() as u64 + 1;
            let opcode = command.opcode().unwrap();
            put_frame(&mut frames, opcode, 1, sequence, |out| out.extend_from_slice(&body));
            self.sent.push((opcode, body));
        }
        self.commands.bytes(&frames).await;
        frames.len()
    }

    /// Submits a step. Returns its ticket and the bytes of its frame.
    pub async fn submit(&mut self, step: impl Into<Step<'_>>) -> (Ticket, usize) {
        let (ticket, step) = (self.next(), step.into());
        let bytes = self.send(Command::Submit { ticket, after: Vec::new(), step }).await;
        (ticket, bytes)
    }

    pub async fn create(&mut self, id: u64, content: &[u8]) {
        let nodes = Content::Inline(content);
        self.send(Command::CreateGraph { id: GraphId(id), nodes }).await;
    }

    pub async fn drop_graph(&mut self, id: u64) {
        self.send(Command::Control(Control::DropGraph { id: GraphId(id) })).await;
    }

    pub async fn launch(&mut self, id: u64, changes: Content<'_>) -> (Ticket, usize) {
        self.submit(Step::Graph { graph: GraphId(id), changes }).await
    }

    /// Sends content on the bulk lane. Returns its place.
    pub async fn bulk(&mut self, content: &[u8]) -> Content<'static> {
        self.transfers += 1;
        let transfer = TransferId(1000 + self.transfers);
        let place = Content::Bulk { transfer, bytes: content.len() as u64 };
        let (mut bulk, reply) =
            self.client.attach(self.lease, self.token.clone(), Lane::Bulk).await;
        assert_eq!(reply.unwrap().0, Attached::OPCODE);
        for (index, bytes) in content.chunks(Chunk::LIMIT).enumerate() {
            let chunk = Chunk { transfer, offset: (index * Chunk::LIMIT) as u64, bytes };
            bulk.frame(Chunk::OPCODE, 1, index as u64 + 1, |out| chunk.encode(out)).await;
        }
        // Its frames stay in flight while the session goes on.
        std::mem::forget(bulk);
        place
    }

    /// The next event.
    pub async fn event(&mut self) -> Result<Event, String> {
        loop {
            let (opcode, body) = self.commands.reply().await?;
            if let Ok(event) = Event::decode(opcode, &body) {
                self.received += 1;
                return Ok(event);
            }
            if let Ok(chunk) = Chunk::decode(&body)
                && opcode == Chunk::OPCODE
            {
                self.received += 1;
                // The only chunks are those of `read`.
                let detail = chunk.bytes.to_vec();
                return Ok(Event::Notice(Notice::Output {
                    text: detail.iter().map(|byte| char::from(*byte)).collect(),
                }));
            }
        }
    }

    /// Waits until a graph is ready.
    pub async fn ready(&mut self, id: u64) -> Result<(), Error> {
        self.send(Command::Request { id, request: Request::GraphReady { graph: GraphId(id) } })
            .await;
        loop {
            match self.event().await.unwrap() {
                Event::Reply { id: of, reply } if of == id => {
                    return reply.map(|reply| assert_eq!(reply, Reply::GraphReady));
                }
                Event::Notice(Notice::Lost { error }) => panic!("{error}"),
                _ => {}
            }
        }
    }

    /// Reads words of a buffer, at most 4096. Returns the errors of the read and of the submissions since the last
    /// read.
    pub async fn read(&mut self, alloc: u64, words: usize) -> Result<Vec<u32>, Failures> {
        let bytes = 4 * words as u64;
        let from = region(alloc, 0);
        let transfer = TransferId(self.last);
        let (ticket, _) = self.submit(Step::Read { from, transfer, bytes }).await;
        self.send(Command::Control(Control::Want { ticket })).await;
        let (mut read, mut failures) = (Vec::new(), Vec::new());
        loop {
            match self.event().await.unwrap() {
                Event::Notice(Notice::Output { text }) => {
                    read.extend(text.chars().map(|character| character as u32 as u8))
                }
                Event::Notice(Notice::Failed { ticket, error }) => failures.push((ticket, error)),
                Event::Notice(Notice::Lost { error }) => panic!("{error}"),
                Event::Notice(Notice::Progress { complete, .. })
                    if complete >= ticket.number && !failures.is_empty() =>
                {
                    return Err(failures);
                }
                Event::Notice(Notice::Progress { complete, .. }) if complete >= ticket.number => {
                    let words = read.chunks_exact(4);
                    return Ok(words
                        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
                        .collect());
                }
                _ => {}
            }
        }
    }

    /// The error that ends the session.
    pub async fn lost(&mut self) -> String {
        loop {
            match self.event().await {
                Ok(Event::Notice(Notice::Lost { error })) => return error.to_string(),
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    }
}
