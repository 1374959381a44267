//! The CPU device under test: directly, and behind an engine. Both take the same commands of a client.

use std::{
    any::Any,
    cell::Cell,
    collections::{BTreeMap, HashMap, VecDeque},
    ptr::NonNull,
    sync::mpsc::{Receiver, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use cuda_core::{
    DeviceInfo, Provider, Result,
    protocol::{
        Capabilities, Foreign, Graph, GraphId, GraphLaunch, HostBlock, HostId, HostRegion,
        ModuleImage, NodeChange, Notice, NoticeSink, Pattern, Region, TransferId, Work,
    },
};
use cuda_cpu::{CpuOptions, CpuProvider, Timing};
use cuda_lease::wire::{Chunk, Content, FrameBuffer, ImageKind, encode_changes, encode_graph};

use super::super::super::*;
use crate::worker::{
    messages::{Drained, Resume, WantTurn},
    reports::{Sink, StagedDownload},
    staging::PIECE,
};

const PTX: &str = include_str!("../../../../../../kernels/faults.ptx");
pub(super) const STREAMS: u64 = 3;
/// A fill with this byte holds its stream until the [gates](Gates) open.
pub(super) const HOLD: u8 = 0xEE;
/// Longer than any program takes.
const LONG: Duration = Duration::from_secs(120);

/// Everything that a client hears.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) complete: HashMap<StreamId, u64>,
    pub(super) failed: HashMap<Ticket, Error>,
    pub(super) faulted: Vec<Error>,
    pub(super) replies: BTreeMap<u64, Result<Reply>>,
    pub(super) chunks: HashMap<TransferId, BTreeMap<u64, Vec<u8>>>,
    pub(super) violations: Vec<String>,
    /// The number of the last report that all work is complete.
    pub(super) drained: u64,
}

#[derive(Default)]
pub(super) struct Log {
    pub(super) heard: Mutex<Heard>,
    more: Condvar,
}

impl Log {
    fn notice(&self, notice: Notice) {
        let heard = &mut *self.heard.lock();
        match notice {
            Notice::Progress { stream, complete, .. } => {
                let known = heard.complete.entry(stream).or_default();
                if complete < *known {
                    heard.violations.push(format!("{stream:?}: {complete} after {known}"));
                }
                *known = complete;
            }
            Notice::Failed { ticket, error } => {
                if heard.complete.get(&ticket.stream).is_some_and(|done| *done >= ticket.number) {
                    heard.violations.push(format!("{ticket:?} failed behind its progress"));
                }
                if heard.failed.insert(ticket, error).is_some() {
                    heard.violations.push(format!("{ticket:?} failed twice"));
                }
            }
            Notice::Faulted { error } => heard.faulted.push(error),
            other => heard.violations.push(format!("{other:?}")),
        }
        self.more.notify_all();
    }

    fn reply(&self, id: u64, reply: Result<Reply>) {
        if self.heard.lock().replies.insert(id, reply).is_some() {
            self.heard.lock().violations.push(format!("request {id} has two replies"));
        }
        self.more.notify_all();
    }

    /// Waits until `is_done`. Fails if that takes too long.
    fn wait(&self, what: &str, mut is_done: impl FnMut(&Heard) -> bool) {
        let deadline = Instant::now() + LONG;
        let mut heard = self.heard.lock();
        while !is_done(&heard) {
            if self.more.wait_until(&mut heard, deadline).timed_out() {
                panic!("hangs: {what}; complete: {:?}", heard.complete);
            }
        }
    }
}

struct LogSink(Arc<Log>);

// SAFETY: forwards nothing.
unsafe impl NoticeSink for LogSink {
    unsafe fn notice(&self, notice: Notice) {
        self.0.notice(notice);
    }
}

/// Holds streams until the test goes on.
#[derive(Default)]
struct Gates {
    /// The number of times that they were opened, and whether they stay open.
    opened: Mutex<(u64, bool)>,
    opens: Condvar,
}

thread_local! {
    /// Whether this thread submits. It must not wait for a gate.
    static SUBMITS: Cell<bool> = const { Cell::new(false) };
}

impl Gates {
    fn open(&self, stay_open: bool) {
        let mut opened = self.opened.lock();
        *opened = (opened.0 + 1, stay_open);
        self.opens.notify_all();
    }

    /// A block whose last owner waits for the next opening.
    fn block(self: &Arc<Self>) -> HostBlock {
        let gates = self.clone();
        let before = self.opened.lock().0;
        let bytes = Box::into_raw(Box::new([[HOLD; 64]; 2]));
        let start = NonNull::new(bytes.cast::<u8>()).unwrap();
        let aligned = start.map_addr(|at| at.checked_add(at.get().wrapping_neg() % 64).unwrap());
        let address = bytes.expose_provenance();
        let free = move |_| {
            let mut opened = gates.opened.lock();
            while *opened == (before, false) && !SUBMITS.get() {
                gates.opens.wait(&mut opened);
            }
            let bytes = std::ptr::with_exposed_provenance_mut::<[[u8; 64]; 2]>(address);
            // SAFETY: the block has no owner any more.
            drop(unsafe { Box::from_raw(bytes) });
        };
        // SAFETY: 64 of the 128 bytes, aligned, until `free` is called.
        unsafe { HostBlock::from_raw(aligned, 64, free) }
    }
}

/// The CPU device, which holds streams and refuses submissions when the test says so.
pub(super) struct Held {
    inner: Arc<dyn Backend>,
    capabilities: Capabilities,
    gates: Arc<Gates>,
    /// The next submission, allocation or creation of a graph is refused with the first of these.
    refusals: Mutex<VecDeque<u64>>,
}

impl Held {
    fn open(options: CpuOptions, backlog: u64, sink: Arc<dyn NoticeSink>) -> Arc<Self> {
        let inner = CpuProvider::new(options).open(0, sink).unwrap();
        let mut capabilities = inner.capabilities().clone();
        capabilities.submissions_in_flight = backlog;
        let (gates, refusals) = Default::default();
        Arc::new(Self { inner, capabilities, gates, refusals })
    }

    fn refusal(&self) -> Result<()> {
        match self.refusals.lock().pop_front() {
            Some(requested) => Err(Error::OutOfHostMemory { requested }),
            None => Ok(()),
        }
    }
}

// SAFETY: forwards to the CPU device. A refused submission is not taken.
unsafe impl Backend for Held {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, submission: &Submission<'_>, host: &[Arc<HostBlock>]) -> Result<()> {
        let &Submission { ticket, after, work } = submission;
        // A join keeps the order of work that was refused.
        if !matches!(work, Work::Join) {
            self.refusal()?;
        }
        if let Work::Fill { to, pattern: Pattern::Byte(HOLD), count } = work {
            let block = Arc::new(self.gates.block());
            let from = HostRegion { block: block.id(), offset: 0 };
            let work = Work::Upload { from, to: *to, bytes: *count };
            SUBMITS.set(true);
            // SAFETY: the rules of the caller. Nothing else uses the block.
            let done =
                unsafe { self.inner.submit(&Submission { ticket, after, work: &work }, &[block]) };
            SUBMITS.set(false);
            return done;
        }
        // SAFETY: the rules of the caller.
        unsafe { self.inner.submit(submission, host) }
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        if let Control::Allocate { .. } | Control::CreateGraph { .. } = control {
            self.refusal()?;
        }
        // SAFETY: the rules of the caller.
        unsafe { self.inner.control(control) }
    }

    fn request(&self, request: Request, answer: Answer) {
        self.inner.request(request, answer);
    }

    unsafe fn peek(&self, stream: StreamId) -> Result<u64> {
        // SAFETY: the rules of the caller.
        unsafe { self.inner.peek(stream) }
    }

    unsafe fn block_until(&self, ticket: Ticket) -> Result<()> {
        // SAFETY: the rules of the caller.
        unsafe { self.inner.block_until(ticket) }
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    fn close(&self, _: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {}
}

/// A submission of the client.
pub(super) enum Asked {
    Work(Work<'static>),
    /// An upload of bytes, in as many pieces as these lengths say. One without pieces travels with its command.
    Upload {
        to: Region,
        bytes: Vec<u8>,
        pieces: Vec<usize>,
    },
    Download {
        from: Region,
        bytes: u64,
    },
    /// A launch of a graph. The uploads among the changes name blocks by the index of their bytes. The changes arrive
    /// late if `is_bulk`.
    Graph {
        id: GraphId,
        uses: Vec<Use>,
        changes: Vec<(u32, Node)>,
        is_bulk: bool,
    },
}

/// A node of a graph, with the bytes of an upload.
#[derive(Clone)]
pub(super) enum Node {
    Work(Work<'static>),
    Upload { to: Region, bytes: Vec<u8> },
}

/// The bytes of blocks.
type Contents = Vec<(HostId, Vec<u8>)>;

/// The nodes as work, with the blocks of the uploads and their bytes.
fn blocks_of<'a>(
    nodes: impl Iterator<Item = &'a Node>,
) -> (Vec<Work<'static>>, Vec<Arc<HostBlock>>, Contents) {
    let (mut blocks, mut contents) = (Vec::new(), Vec::new());
    let works = nodes.map(|node| match node {
        Node::Work(work) => work.clone(),
        Node::Upload { to, bytes } => {
            let mut block = HostBlock::heap(bytes.len()).unwrap();
            block.bytes_mut().copy_from_slice(bytes);
            let from = HostRegion { block: block.id(), offset: 0 };
            contents.push((block.id(), bytes.clone()));
            blocks.push(Arc::new(block));
            Work::Upload { from, to: *to, bytes: bytes.len() as u64 }
        }
    });
    let works = works.collect();
    (works, blocks, contents)
}

#[derive(Debug)]
pub(super) struct Setup {
    pub(super) behind_engine: bool,
    pub(super) is_adversarial: bool,
    pub(super) workers: usize,
    pub(super) backlog: u64,
    /// The memory for graphs, if it is small.
    pub(super) graph_memory: Option<u64>,
    /// Whether the code of the module arrives late.
    pub(super) is_code_late: bool,
    /// Whether the session takes turns from its beginning.
    pub(super) takes_turns: bool,
}

/// The device memory behind the engine.
pub(super) const QUOTA: u64 = 8 << 20;

/// The device with its client.
pub(super) struct Device {
    pub(super) log: Arc<Log>,
    held: Arc<Held>,
    engine: Option<Behind>,
    /// The blocks of downloads.
    downloads: HashMap<Ticket, Arc<HostBlock>>,
    requests: u64,
    is_code_late: bool,
    /// Whether the code of a module has not arrived.
    is_code_due: bool,
}

/// The engine in front of the device.
struct Behind {
    engine: Arc<Engine>,
    bulk: Receiver<StagedDownload>,
    reader: JoinHandle<()>,
    /// The pieces of transfers that have not arrived.
    pieces: VecDeque<(TransferId, Vec<u8>)>,
    is_in_batch: bool,
    transfers: u64,
    /// The transfers of downloads.
    reads: HashMap<Ticket, TransferId>,
    /// The number of requests for a report that all work is complete.
    drains: u64,
}

impl Device {
    pub(super) fn new(setup: &Setup) -> Self {
        let mut options = CpuOptions::default();
        options.workers = Some(setup.workers);
        options.memory = Some(1 << 30);
        if setup.is_adversarial {
            options.timing = Timing::Adversarial { seed: 7, max_delay: Duration::from_micros(200) };
        }
        let log = Arc::<Log>::default();
        let (held, engine) = if setup.behind_engine {
            let (send, bulk) = channel();
            let reports = Reports::new(send);
            reports.outbox.resume(Resume { epoch: 1, received: 0 }, 0);
            let held = Held::open(options, setup.backlog, Arc::new(Sink(reports.clone())));
            let limits = Limits {
                submissions_in_flight: setup.backlog,
                host_bytes_in_flight: 1 << 20,
                memory: QUOTA,
                streams: STREAMS as u32,
                module_bytes: 1 << 20,
            };
            let engine = Engine::new(held.clone(), reports.clone(), limits);
            if let Some(memory) = setup.graph_memory {
                engine.state.lock().graphs.quota = Arc::new(Quota::new(" for graphs", memory));
            }
            let log = log.clone();
            let own = engine.clone();
            let reader = std::thread::spawn(move || read(&reports, &own, &log));
            if setup.takes_turns {
                engine.turn(true);
            }
            let (pieces, reads) = Default::default();
            let (is_in_batch, transfers, drains) = (false, 0, 0);
            let behind =
                Behind { engine, bulk, reader, pieces, is_in_batch, transfers, reads, drains };
            (held, Some(behind))
        } else {
            (Held::open(options, setup.backlog, Arc::new(LogSink(log.clone()))), None)
        };
        let downloads = HashMap::new();
        let is_code_late = setup.is_code_late;
        let mut device =
            Self { log, held, engine, downloads, requests: 0, is_code_late, is_code_due: false };
        for id in 1..=STREAMS {
            device.control(Control::CreateStream { id: StreamId(id), priority: 0 }).unwrap();
        }
        device.load(ModuleId(1));
        device
    }

    /// Loads the module.
    pub(super) fn load(&mut self, id: ModuleId) {
        match &self.engine {
            Some(_) => {
                let (kind, bytes) = (ImageKind::Ptx, PTX.len() as u64);
                self.command(Command::LoadModule { id, kind, hash: [0; 32], bytes });
                self.is_code_due = true;
                if !self.is_code_late {
                    self.code();
                }
            }
            None => {
                let image = ModuleImage::Ptx(PTX.into());
                self.control(Control::LoadModule { id, image }).unwrap();
                let loaded = self.request(Request::Loaded { module: id });
                self.log.wait("the load", |heard| heard.replies.contains_key(&loaded));
            }
        }
    }

    fn command(&self, command: Command<'_>) {
        self.engine.as_ref().unwrap().engine.command(command, 64).unwrap();
    }

    pub(super) fn control(&self, control: Control) -> Result<()> {
        match &self.engine {
            Some(_) => {
                self.command(Command::Control(control));
                Ok(())
            }
            // SAFETY: the program keeps the rules of `Backend`.
            None => unsafe { self.held.control(control) },
        }
    }

    /// Sends a request. Returns the id of its reply.
    pub(super) fn request(&mut self, request: Request) -> u64 {
        self.requests += 1;
        let id = self.requests;
        match &self.engine {
            Some(_) => self.command(Command::Request { id, request }),
            None => {
                let log = self.log.clone();
                let answer = Answer::new(move |reply| log.reply(id, reply));
                self.held.request(request, answer);
            }
        }
        id
    }

    pub(super) fn submit(&mut self, ticket: Ticket, after: &[Ticket], asked: Asked) -> Result<()> {
        if let Some(behind) = &mut self.engine {
            behind.submit(ticket, after, asked);
            return Ok(());
        }
        let (work, host) = match asked {
            Asked::Work(work) => (work, Vec::new()),
            Asked::Upload { to, bytes, .. } => {
                let (mut works, host, _) = blocks_of([Node::Upload { to, bytes }].iter());
                (works.remove(0), host)
            }
            Asked::Download { from, bytes } => {
                let block = Arc::new(HostBlock::heap(bytes as usize)?);
                let to = HostRegion { block: block.id(), offset: 0 };
                self.downloads.insert(ticket, block.clone());
                (Work::Download { from, to, bytes }, vec![block])
            }
            Asked::Graph { id, uses, changes, .. } => {
                let (works, host, _) = blocks_of(changes.iter().map(|(_, node)| node));
                let nodes = changes.iter().map(|(node, _)| *node);
                let changes =
                    nodes.zip(works).map(|(node, work)| NodeChange { node, work }).collect();
                (Work::Graph(GraphLaunch { graph: id, uses: uses.into(), changes }), host)
            }
        };
        let submission = Submission { ticket, after, work: &work };
        // SAFETY: the program orders the uses of memory, and nothing touches the blocks.
        unsafe { self.held.submit(&submission, &host) }
    }

    pub(super) fn create_graph(&self, id: GraphId, nodes: &[Node]) {
        let (works, host, contents) = blocks_of(nodes.iter());
        let node = |(at, work)| {
            let after = if at > 0 { vec![at as u32 - 1] } else { Vec::new() };
            cuda_core::protocol::GraphNode { work, after, name: None }
        };
        let nodes = works.into_iter().enumerate().map(node).collect();
        match &self.engine {
            None => {
                let graph = Arc::new(Graph { nodes, host });
                self.control(Control::CreateGraph { id, graph }).unwrap();
            }
            Some(_) => {
                let graph = Graph { nodes, host: Vec::new() };
                let blocks: Vec<_> = contents.iter().map(|(id, of)| (*id, &of[..])).collect();
                let mut content = Vec::new();
                encode_graph(&graph, &blocks, "lease", &mut content).unwrap();
                self.command(Command::CreateGraph { id, nodes: Content::Inline(&content) });
            }
        }
    }

    /// The device refuses something with this error. Only an engine goes on then as if it had failed.
    pub(super) fn refuse(&self, tag: u64) -> bool {
        if self.engine.is_some() {
            self.held.refusals.lock().push_back(tag);
        }
        self.engine.is_some()
    }

    pub(super) fn clear_refusals(&self) {
        self.held.refusals.lock().clear();
    }

    pub(super) fn open_gates(&self) {
        self.held.gates.open(false);
    }

    /// Begins or ends a batch.
    pub(super) fn batch(&mut self) {
        if let Some(behind) = &mut self.engine {
            behind.is_in_batch = !behind.is_in_batch;
            match behind.is_in_batch {
                true => behind.engine.begin_batch(),
                false => behind.engine.end_batch(),
            }
        }
    }

    /// Another session wants the device. The next command brings the turn back.
    pub(super) fn give_turn_back(&mut self) {
        if let Some(behind) = &mut self.engine {
            behind.engine.turn(false);
            behind.drain();
        }
    }

    /// The next piece of a transfer arrives. Returns whether there was one.
    pub(super) fn piece(&mut self) -> bool {
        self.engine.as_mut().is_some_and(Behind::piece)
    }

    /// The code of the module arrives.
    pub(super) fn code(&mut self) {
        if let Some(behind) = &self.engine
            && std::mem::take(&mut self.is_code_due)
        {
            behind.engine.blob([0; 32], PTX.len() as u64, PTX.as_bytes());
        }
    }

    /// Waits until everything is complete.
    pub(super) fn wait(&mut self, last: &[Ticket]) {
        self.code();
        while self.piece() {}
        if self.engine.as_ref().is_some_and(|behind| behind.is_in_batch) {
            self.batch();
        }
        if let Some(behind) = &mut self.engine {
            behind.engine.turn(true);
            behind.drain();
        }
        self.held.gates.open(true);
        last.iter().for_each(|ticket| self.control(Control::Want { ticket: *ticket }).unwrap());
        self.log.wait("progress", |heard| {
            let complete = |of: &Ticket| heard.complete.get(&of.stream).copied().unwrap_or(0);
            last.iter().all(|of| complete(of) >= of.number)
        });
        let requests = self.requests as usize;
        self.log.wait("a reply", |heard| heard.replies.len() >= requests);
        if let Some(behind) = &self.engine {
            let drains = behind.drains;
            self.log.wait("the report that all work is complete", |heard| heard.drained >= drains);
        }
        self.open_gates();
        if let Some(behind) = &self.engine {
            while let Ok(download) = behind.bulk.try_recv() {
                // SAFETY: the download is complete.
                let bytes = unsafe { download.block.block().shared_bytes() };
                let bytes = bytes[..download.bytes].to_vec();
                let mut heard = self.log.heard.lock();
                heard.chunks.entry(download.transfer).or_default().insert(download.offset, bytes);
            }
        }
    }

    /// The bytes of a download that is complete, as far as they have arrived.
    pub(super) fn downloaded(&self, ticket: Ticket) -> Vec<u8> {
        match &self.engine {
            None => {
                // SAFETY: the download is complete.
                unsafe { self.downloads[&ticket].shared_bytes() }.to_vec()
            }
            Some(behind) => {
                let heard = self.log.heard.lock();
                let chunks = heard.chunks.get(&behind.reads[&ticket]);
                chunks.into_iter().flat_map(|chunks| chunks.values().flatten()).copied().collect()
            }
        }
    }

    pub(super) fn close(self) {
        self.open_gates();
        if let Some(behind) = self.engine {
            behind.engine.close();
            behind.engine.reports.outbox.close();
            behind.reader.join().unwrap();
            assert_eq!(behind.engine.state.lock().held, 0, "commands are held");
        }
    }
}

impl Behind {
    fn drain(&mut self) {
        self.drains += 1;
        self.engine.drain(self.drains);
    }

    fn transfer(&mut self) -> TransferId {
        self.transfers += 1;
        TransferId(self.transfers)
    }

    fn submit(&mut self, ticket: Ticket, after: &[Ticket], asked: Asked) {
        let content;
        let inline;
        let step = match asked {
            Asked::Work(work) => Step::Work(work),
            Asked::Upload { to, bytes, pieces } if pieces.is_empty() => {
                inline = bytes;
                Step::Write { to, bytes: &inline }
            }
            Asked::Upload { to, bytes, pieces } => {
                let transfer = self.transfer();
                let length = bytes.len() as u64;
                let mut rest = &bytes[..];
                for piece in pieces {
                    let (piece, behind) = rest.split_at(piece.min(rest.len()));
                    rest = behind;
                    self.pieces
                        .extend(Some((transfer, piece.to_vec())).filter(|_| !piece.is_empty()));
                }
                let rest = rest.chunks(PIECE).map(|piece| (transfer, piece.to_vec()));
                self.pieces.extend(rest);
                Step::WriteBulk { to, transfer, bytes: length }
            }
            Asked::Download { from, bytes } => {
                let transfer = self.transfer();
                self.reads.insert(ticket, transfer);
                Step::Read { from, transfer, bytes }
            }
            Asked::Graph { id, changes, is_bulk, .. } => {
                let (works, _, contents) = blocks_of(changes.iter().map(|(_, node)| node));
                let nodes = changes.iter().map(|(node, _)| *node);
                let changes: Vec<_> =
                    nodes.zip(works).map(|(node, work)| NodeChange { node, work }).collect();
                let blocks: Vec<_> = contents.iter().map(|(id, of)| (*id, &of[..])).collect();
                let mut encoded = Vec::new();
                encode_changes(&changes, &blocks, "lease", &mut encoded).unwrap();
                content = encoded;
                let changes = if is_bulk {
                    let transfer = self.transfer();
                    let pieces = content.chunks(PIECE).map(|piece| (transfer, piece.to_vec()));
                    self.pieces.extend(pieces);
                    Content::Bulk { transfer, bytes: content.len() as u64 }
                } else {
                    Content::Inline(&content)
                };
                Step::Graph { graph: id, changes }
            }
        };
        let command = Command::Submit { ticket, after: after.to_vec(), step };
        self.engine.command(command, 64).unwrap();
    }

    fn piece(&mut self) -> bool {
        let Some((transfer, bytes)) = self.pieces.pop_front() else { return false };
        let mut piece = self.engine.staging().take(bytes.len()).unwrap().unwrap();
        assert!(piece.fill(0, &bytes));
        self.engine.piece(transfer, piece, bytes.len()).unwrap();
        true
    }
}

/// Reads the events of the worker, as a client does, and gives the turn back when the worker wants it, as a supervisor does.
fn read(reports: &Reports, engine: &Engine, log: &Log) {
    loop {
        let batch = reports.outbox.wait();
        let mut frames = FrameBuffer::default();
        frames.extend(&batch.unnumbered);
        let mut wants_turn = false;
        for frame in frames.take().unwrap().iter() {
            match frame.header.opcode {
                Drained::OPCODE => {
                    let drained = Drained::decode(frame.body).unwrap().request;
                    log.heard.lock().drained = drained;
                    log.more.notify_all();
                }
                WantTurn::OPCODE => wants_turn = true,
                _ => {}
            }
        }
        if let Some(bytes) = &batch.frames {
            let mut frames = FrameBuffer::default();
            frames.extend(bytes);
            let frames = frames.take().unwrap();
            let mut last = 0;
            for frame in frames.iter() {
                last = frame.header.sequence;
                if frame.header.opcode == Chunk::OPCODE {
                    let chunk = Chunk::decode(frame.body).unwrap();
                    let mut heard = log.heard.lock();
                    let chunks = heard.chunks.entry(chunk.transfer).or_default();
                    chunks.insert(chunk.offset, chunk.bytes.to_vec());
                    continue;
                }
                match Event::decode(frame.header.opcode, frame.body).unwrap() {
                    Event::Notice(notice) => log.notice(notice),
                    Event::Reply { id, reply } => log.reply(id, reply),
                    other => panic!("{other:?}"),
                }
            }
            reports.outbox.acknowledge(last).unwrap();
        }
        if reports.outbox.written(&batch) || engine.is_paused() {
            reports.after_progress();
        }
        if !batch.is_open {
            return;
        }
        if wants_turn {
            engine.turn(true);
        }
    }
}
