//! A session of a worker on a CPU device, with a client that keeps no rule.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, mpsc},
    thread,
};

use cuda_core::{
    Access, LaunchConfig, Ticket,
    protocol::{
        AllocId, Control, FunctionId, Graph, GraphId, GraphNode, HostId, HostRegion, Launch,
        ModuleId, NodeChange, Notice, Pattern, PoolId, Region, Relocation, Repeat, Request,
        StreamId, Use, Work,
    },
};
use cuda_cpu::{CpuOptions, CpuProvider};
use cuda_lease::wire::{
    Ack, Chunk, Command, Content, Event, Frame, FrameBuffer, ImageKind, Limits, Step, TransferId,
    encode_changes, encode_graph, frames_in, opcode, put_frame,
};
use cuda_node::{
    process::WorkerEnds,
    worker::{self, Assign, Drain, Drained, Resume, Resumed, WorkerBlob},
};

use super::input::Input;

const IOTA: &str = include_str!("../../../kernels/iota.ptx");
const FAULTS: &str = include_str!("../../../kernels/faults.ptx");

/// Device memory of the lease.
const MEMORY: u64 = 4 << 20;

/// The epoch of the session.
const EPOCH: u32 = 5;

/// The request of the last [`Drain`].
const DRAIN: u64 = 77;

/// Lengths around the limits of staging memory, of small downloads and of the lease.
const LENGTHS: [u64; 12] = [
    0,
    1,
    4,
    1000,
    16 << 10,
    (16 << 10) + 1,
    300_000,
    1 << 20,
    (1 << 20) + 1,
    MEMORY,
    MEMORY + 1,
    u64::MAX,
];

/// Each byte is a command, with operands behind it. In the end the worker has carried out all commands, or has refused
/// one and ended the session.
pub fn session(bytes: &[u8]) {
    let mut options = CpuOptions::default().budget(1 << 14);
    (options.memory, options.workers) = (Some(MEMORY), Some(1));
    let provider = Arc::new(CpuProvider::new(options));
    let (commands, worker_commands) = UnixStream::pair().unwrap();
    let (bulk, worker_bulk) = UnixStream::pair().unwrap();
    let (_jobs, jobs) = UnixStream::pair().unwrap();
    let ends = WorkerEnds { commands: worker_commands, bulk: worker_bulk, jobs };
    let client = Client::default().run(bytes);

    thread::scope(|scope| {
        let worker = scope.spawn(|| worker::run(provider, 0, ends, None, None));
        let (ended, end) = mpsc::channel();
        scope.spawn(|| read_events(&commands, &client.last, ended));
        let (acknowledge, acknowledgements) = mpsc::channel();
        scope.spawn(|| read_downloads(&bulk, acknowledge));
        // Uploads wait for their commands, so each lane has a thread of its own. A worker that ends stops both.
        let sender = scope.spawn(|| (&commands).write_all(&client.commands));
        let uploader = scope.spawn(|| write_bulk(&bulk, &client.chunks, acknowledgements));
        end.recv().expect("the worker ended without a report");
        _ = sender.join().unwrap();
        _ = commands.shutdown(Shutdown::Write);
        worker.join().unwrap().unwrap();
        _ = uploader.join().unwrap();
    });
}

/// Reads events until the worker ends. Reports when it has completed everything, or has told the client that the
/// session is lost.
fn read_events(socket: &UnixStream, last: &HashMap<u64, u64>, ended: mpsc::Sender<()>) {
    let (mut complete, mut is_drained) = (HashMap::new(), false);
    read_frames(socket, |frame| {
        if frame.header.opcode == Drained::OPCODE {
            assert_eq!(Drained::decode(frame.body).unwrap().request, DRAIN);
            is_drained = true;
        }
        match Event::decode(frame.header.opcode, frame.body) {
            Ok(Event::Notice(Notice::Progress { stream, complete: now, .. })) => {
                _ = complete.insert(stream.0, now)
            }
            Ok(Event::Notice(Notice::Lost { .. })) => _ = ended.send(()),
            _ => {}
        }
        // A number that the client made up may be the right one, so more may be complete than it counts.
        let is_complete = |(stream, number)| complete.get(stream).is_some_and(|now| now >= number);
        if is_drained && last.iter().all(is_complete) {
            _ = ended.send(());
        }
    });
}

/// Reads downloads until the worker ends. Requests their acknowledgement.
fn read_downloads(socket: &UnixStream, acknowledge: mpsc::Sender<u64>) {
    read_frames(socket, |frame| match frame.header.opcode {
        Resumed::OPCODE => assert_eq!(Resumed::decode(frame.body).unwrap().error, ""),
        Ack::OPCODE => _ = Ack::decode(frame.body).unwrap(),
        _ => {
            Chunk::decode(frame.body).unwrap();
            _ = acknowledge.send(frame.header.sequence);
        }
    });
}

/// Writes the chunks of uploads, and acknowledgements between them, until the worker ends.
fn write_bulk(
    mut socket: &UnixStream,
    chunks: &[u8],
    acknowledgements: mpsc::Receiver<u64>,
) -> io::Result<()> {
    let write_ack = |received| {
        let mut out = Vec::new();
        put_frame(&mut out, Ack::OPCODE, 0, 0, |out| Ack { received }.encode(out));
        (&*socket).write_all(&out)
    };
    for frame in frames_in(chunks) {
        acknowledgements.try_iter().try_for_each(write_ack)?;
        socket.write_all(frame.bytes)?;
    }
    acknowledgements.iter().try_for_each(write_ack)
}

fn read_frames(mut socket: &UnixStream, mut take: impl FnMut(&Frame<'_>)) {
    let (mut buffer, mut part) = (FrameBuffer::default(), vec![0; 64 << 10]);
    while let Ok(count @ 1..) = socket.read(&mut part) {
        buffer.extend(&part[..count]);
        buffer.take().unwrap().iter().for_each(|frame| take(&frame));
    }
}

/// A client: the bytes that it sends, and its idea of the session.
struct Client {
    commands: Vec<u8>,
    chunks: Vec<u8>,
    /// The last number of each stream that exists.
    last: HashMap<u64, u64>,
    /// The streams that commands name.
    streams: [StreamId; 5],
    next_stream: u64,
    next_blob: u64,
    /// The numbers of the last frames.
    next_command: u64,
    next_chunk: u64,
}

impl Default for Client {
    fn default() -> Self {
        let (commands, chunks, last, next_blob, next_command, next_chunk) = Default::default();
        let streams = [StreamId(0); 5];
        let next_stream = 1;
        Self { commands, chunks, last, streams, next_stream, next_blob, next_command, next_chunk }
    }
}

impl Client {
    fn run(mut self, bytes: &[u8]) -> Self {
        self.begin();
        let mut input = Input::new(bytes);
        while !input.is_empty() {
            self.step(&mut input);
        }
        self.end();
        self
    }

    /// The frames that the supervisor sends first: the limits, and the code of two modules.
    fn begin(&mut self) {
        let limits = Limits {
            submissions_in_flight: 64,
            host_bytes_in_flight: 1 << 20,
            memory: MEMORY,
            streams: 4,
            module_bytes: 1 << 20,
        };
        let assign = Assign { limits, lease: 1, trace: None };
        put_frame(&mut self.commands, Assign::OPCODE, 0, 0, |out| assign.encode(out));
        for lane in [&mut self.commands, &mut self.chunks] {
            let resume = Resume { epoch: EPOCH, received: 0 };
            put_frame(lane, Resume::OPCODE, 0, 0, |out| resume.encode(out));
        }
        for (id, code) in [(0, IOTA), (1, FAULTS)] {
            let (id, hash) = (ModuleId(id), hash(code));
            self.command(&Command::LoadModule {
                id,
                kind: ImageKind::Ptx,
                hash,
                bytes: code.len() as u64,
            });
            self.blob(code);
        }
    }

    /// Waits for everything.
    fn end(&mut self) {
        for (stream, number) in self.last.clone() {
            if number > 0 {
                let ticket = Ticket { stream: StreamId(stream), number };
                self.command(&Command::Control(Control::Want { ticket }));
            }
        }
        self.last.retain(|_, number| *number > 0);
        let drain = Drain { request: DRAIN };
        put_frame(&mut self.commands, Drain::OPCODE, 0, 0, |out| drain.encode(out));
    }

    fn command(&mut self, command: &Command<'_>) {
        let opcode = command.opcode().unwrap();
        self.next_command += 1;
        put_frame(&mut self.commands, opcode, EPOCH, self.next_command, |out| command.encode(out));
    }

    fn chunk(&mut self, chunk: &Chunk<'_>) {
        self.next_chunk += 1;
        let number = self.next_chunk;
        put_frame(&mut self.chunks, Chunk::OPCODE, EPOCH, number, |out| chunk.encode(out));
    }

    fn blob(&mut self, code: &str) {
        let part = code.as_bytes().to_vec().into();
        let blob = WorkerBlob { hash: hash(code), total: code.len() as u64, part };
        put_frame(&mut self.commands, WorkerBlob::OPCODE, 0, 0, |out| blob.encode(out));
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let slot = usize::from(input.byte() % 5);
        let stream = self.streams[slot];
        let command = match input.byte() % 16 {
            0 => {
                // A new id, or rarely one that was used.
                let priority = input.byte();
                let id = if priority == 255 { stream } else { StreamId(self.next_stream) };
                self.next_stream = self.next_stream.max(id.0 + 1);
                self.streams[slot] = id;
                self.last.insert(id.0, 0);
                Command::Control(Control::CreateStream { id, priority: i32::from(priority) - 128 })
            }
            1 => {
                self.last.remove(&stream.0);
                Command::Control(Control::RetireStream { id: stream })
            }
            2 => {
                let (id, bytes) = (alloc(input), input.one_of(&LENGTHS));
                Command::Control(Control::Allocate { id, bytes, at: self.ticket(stream, input) })
            }
            3 => Command::Control(Control::Free {
                id: alloc(input),
                stream,
                after: self.after(stream, input),
            }),
            4 if input.byte().is_multiple_of(4) => {
                let (first, last) = (u64::from(input.byte()), self.known(input).number);
                let downloads = last.is_multiple_of(2);
                Command::Control(Control::Cancel { stream, first, last, downloads })
            }
            4 => Command::Control(Control::Want { ticket: self.known(input) }),
            5 => {
                let id = ModuleId(u64::from(input.byte() % 4));
                let code = input.one_of(&[IOTA, FAULTS, "no PTX"]);
                let (kind, hash) =
                    (input.one_of(&[ImageKind::Ptx, ImageKind::Ptx, ImageKind::Cubin]), hash(code));
                let bytes = input.one_of(&[code.len() as u64, 0, 1 << 21]);
                self.command(&Command::LoadModule { id, kind, hash, bytes });
                return self.blob(code);
            }
            6 => Command::Control(Control::UnloadModule {
                id: ModuleId(u64::from(input.byte() % 4)),
            }),
            7 => {
                let module = ModuleId(u64::from(input.byte() % 4));
                let name = input.one_of(&["__unnamed_1", "$str", "none"]).to_owned();
                Command::Control(Control::NameVariable {
                    id: alloc(input),
                    module,
                    name,
                    bytes: 13,
                })
            }
            8 => {
                let module = ModuleId(u64::from(input.byte() % 4));
                let requests = [
                    Request::Memory,
                    Request::Reset,
                    Request::Loaded { module },
                    Request::PoolMemory { pool: PoolId(0) },
                    Request::TrimPool { pool: PoolId(0), keep: 0 },
                ];
                let request = requests[usize::from(input.byte()) % requests.len()].clone();
                Command::Request { id: u64::from(input.byte()), request }
            }
            9 => {
                // Any bytes, as any command. Not as a graph, which could have an endless loop.
                let (opcode, length) = (0x0600 + u16::from(input.byte() % 0x19), input.byte());
                let opcode =
                    if opcode == opcode::GRAPH_CREATE { opcode::GRAPH_LAUNCH } else { opcode };
                let body = input.bytes(usize::from(length));
                put_frame(&mut self.commands, opcode, 0, 0, |out| out.extend_from_slice(body));
                return;
            }
            10 => return self.graph(stream, input),
            _ => {
                let (ticket, after) = (self.ticket(stream, input), self.after(stream, input));
                let step = self.work(input);
                Command::Submit { ticket, after, step }
            }
        };
        self.command(&command);
    }

    /// The next ticket of a stream, or rarely another one.
    fn ticket(&mut self, stream: StreamId, input: &mut Input<'_>) -> Ticket {
        if input.byte() == 255 {
            return Ticket { stream, number: u64::from(input.byte()) };
        }
        let last = self.last.entry(stream.0).or_default();
        *last += 1;
        Ticket { stream, number: *last }
    }

    /// A ticket that exists, or rarely not.
    fn known(&self, input: &mut Input<'_>) -> Ticket {
        let stream = self.streams[usize::from(input.byte() % 5)];
        let last = self.last.get(&stream.0).copied().unwrap_or(0);
        let back = u64::from(input.byte());
        let number = if back == 255 { last + 1 } else { last.saturating_sub(back % 8) };
        Ticket { stream, number }
    }

    fn after(&self, own: StreamId, input: &mut Input<'_>) -> Vec<Ticket> {
        let count = usize::from(input.byte() % 4);
        let tickets = std::iter::repeat_with(|| self.known(input)).take(count);
        tickets.filter(|ticket| ticket.stream != own).collect()
    }

    fn work<'a>(&mut self, input: &mut Input<'a>) -> Step<'a> {
        match input.byte() % 8 {
            0 => Step::Work(Work::Join),
            1 => {
                let (to, count) = (region(input), input.byte());
                Step::Write { to, bytes: input.bytes(usize::from(count)) }
            }
            2 => {
                let (to, bytes) = (region(input), input.one_of(&LENGTHS[..9]));
                self.next_blob += 1;
                let transfer = TransferId(self.next_blob);
                self.upload(transfer, bytes, input);
                Step::WriteBulk { to, transfer, bytes }
            }
            3 => {
                let (from, bytes) = (region(input), input.one_of(&LENGTHS));
                Step::Read { from, transfer: TransferId(u64::from(input.byte())), bytes }
            }
            4 => {
                let (from, to) = (region(input), region(input));
                Step::Work(Work::Copy { from, to, bytes: input.one_of(&LENGTHS) })
            }
            5 => {
                let to = region(input);
                let pattern = input.one_of(&[Pattern::Byte(1), Pattern::Half(2), Pattern::Word(3)]);
                Step::Work(Work::Fill { to, pattern, count: input.one_of(&LENGTHS) })
            }
            6 => Step::Work(Work::Timestamp { to: region(input) }),
            _ => Step::Work(Work::Launch(launch(input))),
        }
    }

    /// A command of a graph.
    fn graph(&mut self, stream: StreamId, input: &mut Input<'_>) {
        let (kind, id) = (input.byte() % 6, GraphId(u64::from(input.byte() % 3)));
        match kind {
            0 | 1 => {
                let (mut content, mut uploads) = (Vec::new(), Vec::new());
                let graph = graph(input, 2, &mut uploads);
                encode_graph(&graph, &[(UPLOADS, &uploads)], "lease", &mut content).unwrap();
                let nodes = self.place(&content, kind == 1);
                self.command(&Command::CreateGraph { id, nodes });
            }
            2 => self.command(&Command::Control(Control::DropGraph { id })),
            3 => {
                let request = Request::GraphReady { graph: id };
                self.command(&Command::Request { id: u64::from(input.byte()), request });
            }
            _ => {
                let (mut content, mut uploads) = (Vec::new(), Vec::new());
                let count = input.byte() % 3;
                let change = |_| {
                    let node = u32::from(input.byte() % 4);
                    NodeChange { node, work: node_work(input, &mut uploads) }
                };
                let changes: Vec<_> = (0..count).map(change).collect();
                encode_changes(&changes, &[(UPLOADS, &uploads)], "lease", &mut content).unwrap();
                let (ticket, after) = (self.ticket(stream, input), self.after(stream, input));
                let step = Step::Graph { graph: id, changes: self.place(&content, kind == 5) };
                self.command(&Command::Submit { ticket, after, step });
            }
        }
    }

    /// Content in the command, or on the bulk lane.
    fn place<'a>(&mut self, content: &'a [u8], is_bulk: bool) -> Content<'a> {
        if !is_bulk {
            return Content::Inline(content);
        }
        self.next_blob += 1;
        let transfer = TransferId(self.next_blob);
        let chunk = Chunk { transfer, offset: 0, bytes: content };
        put_frame(&mut self.chunks, Chunk::OPCODE, 0, 0, |out| chunk.encode(out));
        Content::Bulk { transfer, bytes: content.len() as u64 }
    }

    /// Sends the bytes of an upload in its chunks, with a fault in rare cases.
    fn upload(&mut self, transfer: TransferId, bytes: u64, input: &mut Input<'_>) {
        let step = input.one_of(&[Chunk::LIMIT, 100_000, 1 << 16]);
        let shift = u64::from(input.byte() == 255);
        let data = vec![transfer.0 as u8; bytes as usize];
        for (index, bytes) in data.chunks(step).enumerate() {
            let chunk = Chunk { transfer, offset: (index * step) as u64 + shift, bytes };
            self.chunk(&chunk);
        }
    }
}

fn alloc(input: &mut Input<'_>) -> AllocId {
    AllocId(u64::from(input.byte() % 8))
}

fn region(input: &mut Input<'_>) -> Region {
    Region { alloc: alloc(input), offset: input.one_of(&[0, 0, 0, 1, 4096, u64::MAX]) }
}

/// The block that the uploads of graphs read.
const UPLOADS: HostId = HostId(1);

/// A graph with loops up to a depth. The bytes of its uploads are added to `uploads`.
fn graph(input: &mut Input<'_>, depth: u32, uploads: &mut Vec<u8>) -> Graph {
    let count = u32::from(input.byte() % 6);
    let nodes = (0..count).map(|index| graph_node(input, index, depth, uploads)).collect();
    Graph { nodes, host: Vec::new() }
}

/// A node that comes after an earlier one, or rarely after itself.
fn graph_node(input: &mut Input<'_>, index: u32, depth: u32, uploads: &mut Vec<u8>) -> GraphNode {
    let work = match input.byte() % 8 {
        0 if depth > 0 => {
            let condition = region(input);
            let mut body = graph(input, depth - 1, uploads);
            // The last node of a pass ends the loop.
            let work = Work::Fill { to: condition, pattern: Pattern::Word(0), count: 1 };
            body.nodes.push(GraphNode { work, after: Vec::new(), name: None });
            Work::Repeat(Repeat { condition, body: Arc::new(body), uses: [].into() })
        }
        _ => node_work(input, uploads),
    };
    let after = match input.byte() {
        255 => vec![index],
        byte if index > 0 && byte % 2 == 1 => vec![u32::from(byte) % index],
        _ => Vec::new(),
    };
    let name = (input.byte() % 4 == 1).then(|| "node".into());
    GraphNode { work, after, name }
}

fn node_work(input: &mut Input<'_>, uploads: &mut Vec<u8>) -> Work<'static> {
    match input.byte() % 8 {
        0 => Work::Join,
        1 | 2 => {
            let (to, count) = (region(input), input.byte());
            let from = HostRegion { block: UPLOADS, offset: uploads.len() as u64 };
            let bytes = input.bytes(usize::from(count));
            uploads.extend_from_slice(bytes);
            Work::Upload { from, to, bytes: bytes.len() as u64 }
        }
        3 => {
            let (from, to) = (region(input), region(input));
            Work::Copy { from, to, bytes: input.one_of(&LENGTHS) }
        }
        4 => {
            let to = region(input);
            let pattern = input.one_of(&[Pattern::Byte(1), Pattern::Half(2), Pattern::Word(3)]);
            Work::Fill { to, pattern, count: input.one_of(&LENGTHS) }
        }
        5 => Work::Timestamp { to: region(input) },
        _ => Work::Launch(launch(input)),
    }
}

fn launch(input: &mut Input<'_>) -> Launch<'static> {
    let (module, entry) = (u64::from(input.byte() % 4), u32::from(input.byte() % 8));
    let count = u32::from(input.byte());
    let relocations: Vec<_> = (0..input.byte() % 3)
        .map(|index| Relocation {
            at: u32::from(index) * input.one_of(&[0, 8, 4, u32::MAX]),
            region: region(input),
            bytes: input.one_of(&LENGTHS),
            access: input.one_of(&[Access::Read, Access::Write]),
        })
        .collect();
    let variables: Vec<_> = (0..input.byte() % 2)
        .map(|_| Use { base: alloc(input), range: 0..input.one_of(&LENGTHS), access: Access::Read })
        .collect();
    let length = input.one_of(&[12, 12, 12, 20, 0, 8]);
    let mut params = [&[0; 8][..], &count.to_le_bytes(), &[0; 8]].concat();
    params.truncate(length);
    let (blocks, threads) = (u32::from(input.byte() % 4), input.one_of(&[32, 1, 0, 1025]));
    Launch {
        function: FunctionId { module: ModuleId(module), entry },
        config: LaunchConfig::new(blocks, threads),
        params: params.into(),
        relocations: relocations.into(),
        variables: variables.into(),
    }
}

fn hash(code: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    let bytes = (code.len() as u64).to_le_bytes();
    hash[..8].copy_from_slice(&bytes);
    hash
}
