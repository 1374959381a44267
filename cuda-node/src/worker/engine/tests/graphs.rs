//! Tests of launches that are held: until the backend has prepared the graph, and until its content, its memory and its
//! modules are there.

use std::{any::Any, sync::mpsc::channel};

use cuda_core::{
    DeviceInfo, Result,
    protocol::{
        AllocId, Answer, Capabilities, Foreign, FunctionId, Graph, GraphId, GraphNode, HostBlock,
        HostId, HostRegion, Launch, LaunchConfig, ModuleId, NodeChange, Notice, NoticeSink,
        Pattern, PoolId, Region, Reply, Request, StreamId, Submission, Work,
    },
};
use cuda_lease::wire::{Content, FRAME_LIMIT, ImageKind, TransferId, encode_changes, encode_graph};

use super::super::{graphs::LONG, *};
use crate::worker::reports::Sink;

/// A backend that keeps the submissions, and prepares graphs and loads modules only when the test says so.
pub(super) struct Slow {
    info: DeviceInfo,
    capabilities: Capabilities,
    submitted: Mutex<Vec<(StreamId, Work<'static>)>>,
    /// The blocks of each launch of a graph.
    hosts: Mutex<Vec<Vec<Weak<HostBlock>>>>,
    pub(super) preparing: Mutex<Vec<Answer>>,
    pub(super) loading: Mutex<Vec<Answer>>,
    /// The pools that are trimmed later.
    pub(super) trimming: Mutex<Vec<(PoolId, Answer)>>,
    created: Mutex<Vec<GraphId>>,
    /// The allocations (`a`) and frees (`f`), and the pools that were dropped (`d`).
    pub(super) memory: Mutex<Vec<(char, u64)>>,
    /// The bytes of each allocation, with the ticket of its free and those that the free comes after.
    pub(super) frees: Mutex<Vec<(u64, Vec<Ticket>)>>,
    /// The last number that each stream has taken, and that it has completed.
    pub(super) numbers: Mutex<[(u64, u64); 3]>,
    /// The tickets whose progress is requested and not reported.
    pub(super) wanted: Mutex<Vec<Ticket>>,
}

// SAFETY: submissions have no effect, and touch no memory.
unsafe impl Backend for Slow {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, submission: &Submission<'_>, host: &[Arc<HostBlock>]) -> Result<()> {
        let at = submission.ticket;
        self.numbers.lock()[at.stream.0 as usize].0 = at.number;
        let work = submission.work.clone().into_owned();
        self.submitted.lock().push((submission.ticket.stream, work));
        self.hosts.lock().push(host.iter().map(Arc::downgrade).collect());
        Ok(())
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        match control {
            Control::CreateGraph { id, .. } => self.created.lock().push(id),
            Control::Allocate { id, at, .. } | Control::AllocateIn { id, at, .. } => {
                self.numbers.lock()[at.stream.0 as usize].0 = at.number;
                self.memory.lock().push(('a', id.0));
            }
            Control::Free { id, stream, mut after } => {
                self.memory.lock().push(('f', id.0));
                let number = self.numbers.lock()[stream.0 as usize].0;
                after.push(Ticket { stream, number });
                self.frees.lock().push((id.0, after));
            }
            Control::DropPool { id } => self.memory.lock().push(('d', id.0)),
            Control::Want { ticket } => self.wanted.lock().push(ticket),
            _ => {}
        }
        Ok(())
    }

    fn request(&self, request: Request, answer: Answer) {
        match request {
            Request::GraphReady { .. } => self.preparing.lock().push(answer),
            Request::Loaded { .. } => self.loading.lock().push(answer),
            Request::TrimPool { pool, .. } => self.trimming.lock().push((pool, answer)),
            other => panic!("{other:?}"),
        }
    }

    unsafe fn peek(&self, _: StreamId) -> Result<u64> {
        Ok(0)
    }

    unsafe fn block_until(&self, _: Ticket) -> Result<()> {
        Ok(())
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    fn close(&self, _: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {}
}

pub(super) const GRAPH: GraphId = GraphId(7);

pub(super) const ALLOC: AllocId = AllocId(1);

/// An allocation whose contents a test loses.
const OTHER: AllocId = AllocId(9);

pub(super) const MODULE: ModuleId = ModuleId(1);

pub(super) struct Test {
    pub(super) engine: Arc<Engine>,
    pub(super) backend: Arc<Slow>,
    last: [u64; 3],
}

impl Test {
    /// A session with the streams 1 and 2.
    pub(super) fn new() -> Self {
        let info = DeviceInfo::new("slow", "prepares graphs late");
        Self::with(info, Capabilities::local(1 << 20))
    }

    pub(super) fn with(info: DeviceInfo, capabilities: Capabilities) -> Self {
        let backend = Arc::new(Slow {
            info,
            capabilities,
            submitted: Mutex::default(),
            hosts: Mutex::default(),
            preparing: Mutex::default(),
            loading: Mutex::default(),
            trimming: Mutex::default(),
            created: Mutex::default(),
            memory: Mutex::default(),
            wanted: Mutex::default(),
            frees: Mutex::default(),
            numbers: Mutex::default(),
        });
        let reports = Reports::new(channel().0);
        let engine = Engine::new(backend.clone(), reports, super::limits());
        let test = Self { engine, backend, last: [0; 3] };
        for id in [1, 2] {
            test.command(Command::Control(Control::CreateStream { id: StreamId(id), priority: 0 }));
        }
        test
    }

    pub(super) fn command(&self, command: Command<'_>) {
        self.engine.command(command, 64).unwrap();
    }

    pub(super) fn next(&mut self, stream: u64) -> Ticket {
        self.last[stream as usize] += 1;
        Ticket { stream: StreamId(stream), number: self.last[stream as usize] }
    }

    pub(super) fn submit<'a>(
        &mut self,
        stream: u64,
        after: &[Ticket],
        step: impl Into<Step<'a>>,
    ) -> Ticket {
        let (ticket, step) = (self.next(stream), step.into());
        self.command(Command::Submit { ticket, after: after.to_vec(), step });
        ticket
    }

    fn allocate(&mut self, stream: u64) {
        let at = self.next(stream);
        self.command(Command::Control(Control::Allocate { id: ALLOC, bytes: 64, at }));
    }

    /// Makes the allocation [`OTHER`].
    fn allocate_other(&self) {
        let objects = &mut self.engine.state.lock().objects;
        objects.announce(OTHER, self.engine.quota.charge(64)).unwrap();
        let of_lease = objects.make(OTHER).unwrap();
        objects.made(OTHER, Memory { of_lease, of_pool: None });
    }

    /// Loses the contents of [`OTHER`].
    fn lose_other(&self) {
        let error = cuda_core::Error::OutOfHostMemory { requested: 1 };
        self.engine.state.lock().objects.spread_over(OTHER, &error);
    }

    pub(super) fn create(&self) {
        let content = content();
        self.command(Command::CreateGraph { id: GRAPH, nodes: Content::Inline(&content) });
    }

    fn launch(&mut self, changes: Content<'_>) -> Ticket {
        self.submit(1, &[], Step::Graph { graph: GRAPH, changes })
    }

    /// The backend has prepared the graphs.
    fn prepared(&self) {
        let answers = std::mem::take(&mut *self.backend.preparing.lock());
        answers.into_iter().for_each(|answer| answer.give(Ok(Reply::GraphReady)));
    }

    /// Announces a module, and brings its code.
    pub(super) fn load(&self) {
        let kind = ImageKind::Ptx;
        self.command(Command::LoadModule { id: MODULE, kind, hash: [0; 32], bytes: 1 });
        self.engine.blob([0; 32], 1, b" ");
    }

    /// The backend has loaded the modules.
    pub(super) fn loaded(&self) {
        let answers = std::mem::take(&mut *self.backend.loading.lock());
        let reply =
            Reply::Loaded { max_threads: Vec::new(), log: String::new(), entries: Vec::new() };
        answers.into_iter().for_each(|answer| answer.give(Ok(reply.clone())));
    }

    /// The bytes of a transfer arrive.
    fn arrive(&self, transfer: u64, bytes: &[u8]) {
        assert_eq!(self.engine.expected(TransferId(transfer)), Some((0, bytes.len() as u64)));
        let mut piece = self.engine.staging().take(bytes.len()).unwrap().unwrap();
        assert!(piece.fill(0, bytes));
        self.engine.piece(TransferId(transfer), piece, bytes.len()).unwrap();
    }

    /// The submissions that the backend has, by stream: `g` for a graph, `j` for a join, `l` for a launch.
    pub(super) fn submitted(&self) -> Vec<(u64, char)> {
        let kind = |work: &Work<'_>| match work {
            Work::Graph(_) => 'g',
            Work::Join => 'j',
            Work::Launch(_) => 'l',
            _ => '?',
        };
        self.backend.submitted.lock().iter().map(|(ticket, work)| (ticket.0, kind(work))).collect()
    }

    /// The backend reports the progress that was requested, until none is requested. Returns whether there was any.
    pub(super) fn report_wanted(&self) -> bool {
        let (mut has_reported, mut rounds) = (false, 0);
        loop {
            let wanted = std::mem::take(&mut *self.backend.wanted.lock());
            rounds += 1;
            assert!(
                rounds < 1000,
                "endless reports: {wanted:?}, {:?}, {:?}",
                self.backend.numbers.lock(),
                self.engine.quota
            );
            if wanted.is_empty() {
                return has_reported;
            }
            let sink = Sink(self.engine.reports.clone());
            for Ticket { stream, number } in wanted {
                let number = {
                    let numbers = &mut self.backend.numbers.lock()[stream.0 as usize];
                    numbers.1 = numbers.1.max(number);
                    numbers.1
                };
                let notice = Notice::Progress { stream, accepted: number, complete: number };
                // SAFETY: submissions have no effect.
                unsafe { sink.notice(notice) };
                has_reported = true;
            }
        }
    }

    pub(super) fn last(&self, stream: u64) -> u64 {
        self.last[stream as usize]
    }

    /// A part of what a stream has taken is complete.
    pub(super) fn complete_some(&self, stream: u64, random: &mut impl FnMut(u64) -> u64) {
        let complete = {
            let (taken, complete) = &mut self.backend.numbers.lock()[stream as usize];
            *complete += random(*taken - *complete + 1);
            *complete
        };
        let sink = Sink(self.engine.reports.clone());
        let notice = Notice::Progress { stream: StreamId(stream), accepted: complete, complete };
        // SAFETY: submissions have no effect.
        unsafe { sink.notice(notice) };
    }

    /// Everything that a stream has taken is complete.
    pub(super) fn complete(&self, stream: u64) {
        let complete = self.engine.reports.backlog(StreamId(stream)).1;
        let sink = Sink(self.engine.reports.clone());
        let notice = Notice::Progress { stream: StreamId(stream), accepted: complete, complete };
        // SAFETY: submissions have no effect.
        unsafe { sink.notice(notice) };
    }
}

pub(super) fn kernel() -> Work<'static> {
    Work::Launch(Launch {
        function: FunctionId { module: MODULE, entry: 0 },
        config: LaunchConfig::new(1, 1),
        params: Default::default(),
        relocations: Default::default(),
        variables: Default::default(),
    })
}

/// An upload of the first four bytes of block 1.
fn write() -> Work<'static> {
    let from = HostRegion { block: HostId(1), offset: 0 };
    Work::Upload { from, to: Region { alloc: ALLOC, offset: 0 }, bytes: 4 }
}

fn copy_of_other() -> Work<'static> {
    let from = Region { alloc: OTHER, offset: 0 };
    Work::Copy { from, to: Region { alloc: ALLOC, offset: 8 }, bytes: 8 }
}

/// The content of a graph. Block 1 has four ones.
fn content_of(nodes: impl IntoIterator<Item = Work<'static>>) -> Vec<u8> {
    let node = |work| GraphNode { work, after: Vec::new(), name: None };
    let graph = Graph { nodes: nodes.into_iter().map(node).collect(), host: Vec::new() };
    let mut content = Vec::new();
    encode_graph(&graph, &[(HostId(1), &[1; 4])], "lease", &mut content).unwrap();
    content
}

/// The content of a graph that uploads four bytes and fills.
fn content() -> Vec<u8> {
    let to = Region { alloc: ALLOC, offset: 0 };
    content_of([write(), Work::Fill { to, pattern: Pattern::Word(1), count: 1 }])
}

fn change(bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    let change = NodeChange { node: 0, work: write() };
    encode_changes(&[change], &[(HostId(1), bytes)], "lease", &mut content).unwrap();
    content
}

#[test]
fn launch_waits_until_the_backend_has_loaded_its_module() {
    let mut test = Test::new();
    test.load();
    test.submit(1, &[], kernel());
    test.submit(2, &[], Work::Join);
    assert_eq!(test.submitted(), [(2, 'j')]);
    test.loaded();
    assert_eq!(test.submitted(), [(2, 'j'), (1, 'l')]);
    test.submit(1, &[], kernel());
    assert_eq!(test.submitted().len(), 3);
}

#[test]
fn launch_of_a_module_that_is_unloaded_while_it_is_loading_is_not_held() {
    let mut test = Test::new();
    test.load();
    test.submit(1, &[], kernel());
    assert_eq!(test.submitted(), []);
    test.command(Command::Control(Control::UnloadModule { id: MODULE }));
    assert_eq!(test.submitted(), [(1, 'l')]);
    test.loaded();
}

/// The reply has an entry for each kernel, so it takes long to make.
#[test]
fn backend_is_asked_once_about_a_module_whose_reply_is_too_long() {
    let test = Test::new();
    test.load();
    let max_threads = vec![1; FRAME_LIMIT as usize / 4];
    let reply = Reply::Loaded { max_threads, log: String::new(), entries: Vec::new() };
    let answers = std::mem::take(&mut *test.backend.loading.lock());
    answers.into_iter().for_each(|answer| answer.give(Ok(reply.clone())));
    test.command(Command::Request { id: 1, request: Request::Loaded { module: MODULE } });
    assert!(test.backend.loading.lock().is_empty());
    assert_eq!(test.engine.asked.load(Ordering::Relaxed), 0);
}

/// Nothing else is held, and no command follows.
#[test]
fn graph_is_created_when_the_backend_has_loaded_its_modules() {
    let test = Test::new();
    test.load();
    let content = content_of([kernel()]);
    test.command(Command::CreateGraph { id: GRAPH, nodes: Content::Inline(&content) });
    assert_eq!(*test.backend.created.lock(), []);
    test.loaded();
    assert_eq!(*test.backend.created.lock(), [GRAPH]);
}

/// A session gave its turn back while a module loads. Its client waits for the graph, and sends no command meanwhile.
#[test]
fn graph_of_a_session_without_the_turn_is_created_or_the_turn_is_wanted() {
    let mut test = Test::new();
    test.engine.turn(false);
    test.submit(1, &[], Work::Join);
    let kind = ImageKind::Ptx;
    test.command(Command::LoadModule { id: MODULE, kind, hash: [0; 32], bytes: 1 });
    let content = content_of([kernel()]);
    test.command(Command::CreateGraph { id: GRAPH, nodes: Content::Inline(&content) });
    test.command(Command::Request { id: 1, request: Request::GraphReady { graph: GRAPH } });
    test.engine.drain(1);
    // The time slice ends while the join is in flight.
    test.engine.turn(false);
    test.report_wanted();
    assert_eq!(test.engine.state.lock().drain, None, "the turn was not given back");
    test.engine.blob([0; 32], 1, b" ");
    test.loaded();
    let is_wanted = test.engine.state.lock().turn == Turn::Wanted;
    let is_created = *test.backend.created.lock() == [GRAPH];
    assert!(is_wanted || is_created, "nothing ever creates the graph");
}

/// The same after a restart of the node: the next node requests the turn back before all else. The content of the graph
/// arrives on the bulk lane, which needs no turn.
#[test]
fn graph_whose_content_arrives_after_a_restart_is_created_or_the_turn_is_wanted() {
    let test = Test::new();
    test.engine.turn(false);
    let content = content_of([Work::Join]);
    let (transfer, bytes) = (TransferId(5), content.len() as u64);
    let nodes = Content::Bulk { transfer, bytes };
    test.command(Command::CreateGraph { id: GRAPH, nodes });
    test.command(Command::Request { id: 1, request: Request::GraphReady { graph: GRAPH } });
    test.engine.drain(1);
    test.engine.turn(false);
    test.engine.rejoined();
    test.engine.drain(2);
    test.arrive(5, &content);
    let is_wanted = test.engine.state.lock().turn == Turn::Wanted;
    let is_created = *test.backend.created.lock() == [GRAPH];
    assert!(is_wanted || is_created, "nothing ever creates the graph");
}

/// Otherwise each operation waits for the completion of the one before.
#[test]
fn stream_of_a_session_with_many_idle_ones_has_several_operations_on_the_device() {
    let mut test = Test::new();
    test.engine.turn(false);
    for id in 3..=300 {
        test.engine.state.lock().streams.insert(StreamId(id), Stream::default());
    }
    (0..10).for_each(|_| _ = test.submit(1, &[], Work::Join));
    assert_eq!(test.submitted().len() as u64, TURN_BACKLOG_OF_MANY);
}

#[test]
fn launch_waits_for_the_preparation_and_other_streams_go_on() {
    let mut test = Test::new();
    test.allocate(1);
    test.create();
    let launch = test.launch(Content::NO_CHANGES);
    test.submit(1, &[], Work::Join);
    test.submit(2, &[], Work::Join);
    assert_eq!(test.submitted(), [(2, 'j')]);
    test.submit(2, &[launch], Work::Join);
    assert_eq!(test.submitted(), [(2, 'j')]);
    test.prepared();
    let mut submitted = test.submitted();
    submitted.sort_unstable();
    assert_eq!(submitted, [(1, 'g'), (1, 'j'), (2, 'j'), (2, 'j')]);
}

#[test]
fn graph_waits_for_memory_whose_allocation_is_held() {
    let mut test = Test::new();
    // Another graph, whose preparation holds the allocation.
    let other = Content::Inline(&[0; 4]);
    test.command(Command::CreateGraph { id: GraphId(8), nodes: other });
    test.submit(1, &[], Step::Graph { graph: GraphId(8), changes: Content::NO_CHANGES });
    test.allocate(1);
    test.create();
    assert_eq!(*test.backend.created.lock(), [GraphId(8)]);
    test.prepared();
    assert_eq!(*test.backend.created.lock(), [GraphId(8), GRAPH]);
}

#[test]
fn content_on_the_bulk_lane_holds_the_graph_and_its_launches() {
    let mut test = Test::new();
    test.allocate(1);
    let (nodes, changes) = (content(), change(&[2; 4]));
    let bulk = |transfer, bytes: &[u8]| Content::Bulk {
        transfer: TransferId(transfer),
        bytes: bytes.len() as u64,
    };
    test.command(Command::CreateGraph { id: GRAPH, nodes: bulk(1, &nodes) });
    test.launch(bulk(2, &changes));
    assert_eq!(*test.backend.created.lock(), []);
    test.arrive(1, &nodes);
    test.prepared();
    assert_eq!(test.submitted(), []);
    test.arrive(2, &changes);
    assert_eq!(test.submitted(), [(1, 'g')]);
    let work = test.backend.submitted.lock()[0].1.clone();
    let Work::Graph(launch) = &work else { panic!("{work:?}") };
    assert_eq!((launch.changes.len(), launch.changes[0].node), (1, 0));
}

/// The content of a graph that is dropped meanwhile is discarded, and does not become that of a later graph.
#[test]
fn content_of_a_dropped_graph_is_discarded() {
    let test = Test::new();
    let nodes = content();
    let place = Content::Bulk { transfer: TransferId(1), bytes: nodes.len() as u64 };
    test.command(Command::CreateGraph { id: GRAPH, nodes: place });
    test.command(Command::Control(Control::DropGraph { id: GRAPH }));
    let place = Content::Bulk { transfer: TransferId(2), bytes: 4 };
    test.command(Command::CreateGraph { id: GRAPH, nodes: place });
    test.arrive(1, &nodes);
    assert_eq!(*test.backend.created.lock(), []);
    test.arrive(2, &[0; 4]);
    assert_eq!(*test.backend.created.lock(), [GRAPH]);
}

/// A change replaces the host memory of a node. Launches in flight still read the memory before it.
#[test]
fn launches_in_flight_keep_host_memory_that_a_change_replaces() {
    let mut test = Test::new();
    test.allocate(1);
    test.create();
    test.prepared();
    for value in [2, 3] {
        test.launch(Content::Inline(&change(&[value; 4])));
    }
    let blocks: Vec<_> = test.backend.hosts.lock().iter().flatten().cloned().collect();
    let is_alive = || [0, 1].map(|index: usize| blocks[index].strong_count() > 0);
    assert_eq!((blocks.len(), is_alive()), (2, [true, true]));
    test.complete(1);
    assert_eq!(is_alive(), [false, true]);
    test.command(Command::Control(Control::DropGraph { id: GRAPH }));
    assert_eq!(is_alive(), [false, false]);
    assert_eq!(test.engine.state.lock().graphs.quota.limit_and_used().1, 0);
}

/// While contents are lost, the worker looks at each node of a graph. It carries out one such launch at a time, so that the
/// request for the turn is read in time.
#[test]
fn launches_of_a_long_graph_do_not_delay_the_request_for_the_turn() {
    for reads_lost in [true, false] {
        let mut test = Test::new();
        test.engine.turn(true);
        test.allocate(1);
        test.allocate_other();
        let nodes = std::iter::repeat_with(write).take(LONG);
        let content = content_of(nodes.chain(reads_lost.then(copy_of_other)));
        test.command(Command::CreateGraph { id: GRAPH, nodes: Content::Inline(&content) });
        test.prepared();
        test.lose_other();
        test.engine.begin_batch();
        for stream in [1, 1, 2, 2, 2] {
            test.submit(stream, &[], Step::Graph { graph: GRAPH, changes: Content::NO_CHANGES });
        }
        let held = |test: &Test| test.engine.state.lock().held;
        assert_eq!(held(&test), 4);
        test.engine.end_batch();
        assert_eq!(held(&test), 3);
        // The session has no turn.
        test.engine.turn(false);
        test.engine.after_progress();
        assert_eq!(held(&test), 3);
        test.engine.turn(true);
        assert_eq!(held(&test), 2);
        for left in [1, 0] {
            // The thread that writes events calls this.
            assert!(test.engine.is_paused());
            test.engine.after_progress();
            assert_eq!(held(&test), left);
        }
    }
}

/// A session may have a thousand streams, and each reports its progress while it gives its turn back.
#[test]
fn progress_of_each_stream_is_requested_once_when_the_turn_ends() {
    let mut test = Test::new();
    for stream in [1, 2] {
        test.submit(stream, &[], Work::Join);
    }
    test.engine.turn(false);
    test.engine.drain(1);
    assert_eq!(test.backend.wanted.lock().len(), 2);
    test.complete(1);
    assert_eq!(test.backend.wanted.lock().len(), 2);
    assert!(test.report_wanted());
    assert_eq!(test.engine.state.lock().drain, None);
}

/// A session may have millions of them.
#[test]
fn predecessors_of_commands_do_not_delay_the_request_for_the_turn() {
    let mut test = Test::new();
    test.load();
    let first = test.submit(1, &[], kernel());
    for _ in 0..6 {
        test.submit(2, &vec![first; LOOKS / 2], Work::Join);
    }
    let held = |test: &Test| test.engine.state.lock().held;
    assert_eq!(held(&test), 7);
    test.loaded();
    assert!(held(&test) >= 4);
    let mut before = 7;
    while held(&test) > 0 {
        assert!(held(&test) < before && before - held(&test) <= 3 && test.engine.is_paused());
        before = held(&test);
        test.engine.after_progress();
    }
}

/// Each change, and each launch that fails, looks at all nodes of the graph.
#[test]
fn launches_of_a_long_graph_that_change_it_or_fail_do_not_delay_the_request_for_the_turn() {
    for is_refused in [false, true] {
        let mut test = Test::new();
        test.engine.turn(true);
        test.allocate(1);
        if is_refused {
            test.allocate_other();
            let error = cuda_core::Error::OutOfHostMemory { requested: 1 };
            test.engine.state.lock().objects.refuse(OTHER, &error);
        }
        let nodes = std::iter::repeat_with(write).take(LONG);
        let content = content_of(nodes.chain(is_refused.then(copy_of_other)));
        test.command(Command::CreateGraph { id: GRAPH, nodes: Content::Inline(&content) });
        test.prepared();
        test.engine.state.lock().objects.remove(OTHER);
        let changes = change(&[2; 4]);
        let changes = if is_refused { Content::NO_CHANGES } else { Content::Inline(&changes) };
        test.engine.begin_batch();
        for stream in [1, 1, 2, 2] {
            test.submit(stream, &[], Step::Graph { graph: GRAPH, changes });
        }
        test.engine.end_batch();
        for left in [2, 1, 0] {
            assert!(test.engine.is_paused());
            assert_eq!(test.engine.state.lock().held, left);
            test.engine.after_progress();
        }
    }
}

/// Each command comes after one of a stream that the engine looks at later. So the engine looks at all streams for each of
/// them.
#[test]
fn commands_that_come_after_each_other_do_not_delay_the_request_for_the_turn() {
    const STREAMS: u64 = 4;
    const ROUNDS: u64 = 8000;
    let test = Test::new();
    for id in (3..=STREAMS).map(StreamId) {
        test.command(Command::Control(Control::CreateStream { id, priority: 0 }));
    }
    test.allocate_other();
    test.lose_other();
    let mut streams: Vec<_> = test.engine.state.lock().streams.keys().copied().collect();
    streams.reverse();
    let other = Region { alloc: OTHER, offset: 0 };
    // The first command waits for bytes, then fails, because there is no such graph.
    let bytes = change(&[2; 4]);
    let changes = Content::Bulk { transfer: TransferId(3), bytes: bytes.len() as u64 };
    let mut first = Some(Step::Graph { graph: GRAPH, changes });
    let mut after = Vec::new();
    for number in 1..=ROUNDS {
        for stream in streams.iter().copied() {
            let ticket = Ticket { stream, number };
            let copy = Work::Copy { from: other, to: other, bytes: 8 };
            let step = first.take().unwrap_or(Step::Work(copy));
            test.command(Command::Submit { ticket, after, step });
            after = vec![ticket];
        }
    }
    let held = || test.engine.state.lock().held;
    assert_eq!(held() as u64, STREAMS * ROUNDS);
    test.arrive(3, &bytes);
    let mut calls = 1;
    while held() > 0 {
        assert!(test.engine.is_paused());
        test.engine.after_progress();
        calls += 1;
    }
    assert!(calls > 5, "{calls} calls");
}

/// The engine does not look again at submitted commands that a held command comes after: there may be thousands.
#[test]
fn engine_looks_once_at_each_command_that_a_held_one_comes_after() {
    let mut test = Test::new();
    test.allocate(1);
    let first = Ticket { stream: StreamId(1), number: 1 };
    let (to, bytes) = (Region { alloc: ALLOC, offset: 0 }, 4);
    let uploads = [TransferId(1), TransferId(2)];
    let [left, right] =
        uploads.map(|transfer| test.submit(1, &[], Step::WriteBulk { to, transfer, bytes }));
    test.submit(2, &[first, first, left, right], Step::Work(Work::Join));
    let seen = |test: &Test| {
        let state = test.engine.state.lock();
        state.streams[&StreamId(2)].held.front().map(|item| item.submitted)
    };
    test.engine.after_progress();
    assert_eq!(seen(&test), Some(2));
    test.arrive(1, &[7; 4]);
    assert_eq!(seen(&test), Some(3));
    test.arrive(2, &[7; 4]);
    assert_eq!(seen(&test), None);
}

/// Bytes find their upload among other commands that are held.
#[test]
fn uploads_get_their_bytes_in_any_order() {
    let mut test = Test::new();
    test.allocate(1);
    test.allocate_other();
    let (to, bytes) = (Region { alloc: ALLOC, offset: 0 }, 4);
    let free = |id| {
        let (stream, after) = (StreamId(1), Vec::new());
        Command::Control(Control::Free { id, stream, after })
    };
    test.submit(1, &[], Step::WriteBulk { to, transfer: TransferId(1), bytes });
    test.command(free(OTHER));
    test.submit(1, &[], Step::WriteBulk { to, transfer: TransferId(2), bytes });
    test.command(free(ALLOC));
    test.submit(1, &[], Step::Work(Work::Join));
    test.submit(1, &[], Step::WriteBulk { to, transfer: TransferId(3), bytes });
    for transfer in [3, 2, 1] {
        test.arrive(transfer, &[7; 4]);
    }
    assert_eq!(test.engine.state.lock().held, 0);
    assert_eq!(test.submitted(), [(1, '?'), (1, '?'), (1, 'j'), (1, '?')]);
}

/// A launch that reads lost contents does not run. Its changes hold for the next one.
#[test]
fn changes_of_a_launch_that_is_skipped_hold_for_the_next_one() {
    let mut test = Test::new();
    test.allocate(1);
    test.allocate_other();
    let content = content_of([write(), copy_of_other()]);
    test.command(Command::CreateGraph { id: GRAPH, nodes: Content::Inline(&content) });
    test.prepared();
    test.lose_other();
    test.launch(Content::Inline(&change(&[2; 4])));
    assert_eq!(test.submitted(), []);
    test.engine.state.lock().objects.remove(OTHER);
    test.launch(Content::NO_CHANGES);
    test.launch(Content::NO_CHANGES);
    let changes = |at: usize| match &test.backend.submitted.lock()[at].1 {
        Work::Graph(launch) => launch.changes.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!([changes(0), changes(1)], [1, 0]);
}

/// A client asks whether a module is loaded, again and again, while the backend loads it.
#[test]
fn queries_about_a_module_that_loads_are_limited() {
    let test = Test::new();
    test.load();
    let ask = |id| Command::Request { id, request: Request::Loaded { module: MODULE } };
    let refused = (0..=QUERY_LIMIT as u64).find_map(|id| test.engine.command(ask(id), 64).err());
    assert!(refused.unwrap().to_string().contains("queries wait"));
    test.loaded();
    test.command(ask(0));
}

#[test]
fn queries_about_a_graph_that_is_prepared_are_limited() {
    let mut test = Test::new();
    test.allocate(1);
    test.create();
    let ask = |id| Command::Request { id, request: Request::GraphReady { graph: GRAPH } };
    let refused = (0..=QUERY_LIMIT as u64).find_map(|id| test.engine.command(ask(id), 64).err());
    assert!(refused.unwrap().to_string().contains("queries wait"));
    test.prepared();
    test.command(ask(0));
}

/// Work that fails before it reaches the backend, behind work that does not end.
#[test]
fn failed_work_behind_a_submission_that_does_not_end_is_limited() {
    let mut test = Test::new();
    test.submit(1, &[], Work::Join);
    let at = test.next(1);
    test.command(Command::Control(Control::Allocate { id: ALLOC, bytes: 2 << 20, at }));
    let region = |id| Region { alloc: AllocId(id), offset: 0 };
    let backlog = test.engine.backlog;
    for _ in 0..2 * backlog {
        test.submit(1, &[], Work::Copy { from: region(ALLOC.0), to: region(2), bytes: 4 });
    }
    let in_flight = |test: &Test| test.engine.reports.in_flight(StreamId(1));
    assert_eq!(in_flight(&test), backlog + 1);
    test.complete(1);
    assert_eq!((in_flight(&test), test.engine.state.lock().held), (0, 0));
}

/// Otherwise work that comes after the one that is skipped does not come after what that one comes after.
#[test]
fn work_that_is_skipped_keeps_its_place_in_the_order_of_streams() {
    let mut test = Test::new();
    let at = test.next(1);
    test.command(Command::Control(Control::Allocate { id: ALLOC, bytes: 2 << 20, at }));
    let before = test.submit(2, &[], Work::Join);
    let region = |id| Region { alloc: AllocId(id), offset: 0 };
    let copy = || Work::Copy { from: region(ALLOC.0), to: region(2), bytes: 4 };
    test.submit(1, &[], copy());
    assert_eq!(test.submitted(), [(2, 'j')]);
    let skipped = test.submit(1, &[before], copy());
    assert_eq!(test.submitted(), [(2, 'j'), (1, 'j')]);
    assert_eq!(test.engine.reports.stage(skipped), Stage::Submitted(1));
}

/// A client may have thousands of graphs that wait, and a command would look at all of their operands.
#[test]
fn graph_that_waits_is_looked_at_only_when_that_may_end() {
    let test = Test::new();
    let (other, charge) = (AllocId(8), test.engine.quota.charge(64));
    test.engine.state.lock().objects.announce(ALLOC, charge).unwrap();
    test.load();
    let to = Region { alloc: ALLOC, offset: 0 };
    let fill = Work::Fill { to, pattern: Pattern::Word(1), count: 1 };
    let content = content_of([kernel(), fill]);
    let create = |test: &Test| {
        test.command(Command::CreateGraph { id: GRAPH, nodes: Content::Inline(&content) });
    };
    create(&test);
    let is_unchecked_after = |happens: &dyn Fn(&mut State)| {
        let state = &mut *test.engine.state.lock();
        assert!(!state.graphs.has_unchecked());
        happens(state);
        state.graphs.has_unchecked()
    };
    assert!(!is_unchecked_after(&|state| state.graphs.check_modules(|_| true)));
    let is_made =
        |id| is_unchecked_after(&move |state| state.graphs.has_happened(Awaited::Allocation(id)));
    assert!(!is_made(other) && is_made(ALLOC));
    // It is still pending.
    test.command(Command::Control(Control::DropGraph { id: GraphId(99) }));
    test.engine.state.lock().objects.make(ALLOC).map(drop).unwrap();
    test.engine.state.lock().graphs.has_happened(Awaited::Allocation(ALLOC));
    test.command(Command::Control(Control::DropGraph { id: GraphId(99) }));
    assert!(test.engine.state.lock().graphs.has_waiting());
    test.command(Command::Control(Control::DropGraph { id: GRAPH }));
    assert!(!test.engine.state.lock().graphs.has_waiting());
    create(&test);
    assert!(test.engine.state.lock().graphs.has_waiting());
    test.loaded();
    assert_eq!(*test.backend.created.lock(), [GRAPH]);
    assert!(!test.engine.state.lock().graphs.has_waiting());
}

/// A client may have thousands of graphs that wait for modules, and commands that come after each other on many streams.
#[test]
fn modules_that_graphs_wait_for_are_looked_at_once_for_many_commands() {
    let mut test = Test::new();
    test.load();
    let content = content_of([kernel()]);
    test.command(Command::CreateGraph { id: GRAPH, nodes: Content::Inline(&content) });
    // The first of them waits for bytes.
    let (to, transfer, bytes) = (Region { alloc: ALLOC, offset: 0 }, TransferId(1), 4);
    let mut after = test.submit(1, &[], Step::WriteBulk { to, transfer, bytes });
    for stream in [2, 1].repeat(20) {
        after = test.submit(stream, &[after], Work::Join);
    }
    let before = test.engine.state.lock().graphs.searches;
    test.arrive(1, &[7; 4]);
    let state = test.engine.state.lock();
    assert_eq!((state.held, state.graphs.searches - before), (0, 1));
}

/// Else a client waits for ever, if nothing else of its session is in flight.
#[test]
fn launch_fails_when_the_graph_that_it_waits_for_is_dropped() {
    let mut test = Test::new();
    let nodes = Content::Bulk { transfer: TransferId(1), bytes: 4 };
    test.command(Command::CreateGraph { id: GRAPH, nodes });
    test.launch(Content::NO_CHANGES);
    assert_eq!(test.engine.state.lock().held, 1);
    test.command(Command::Control(Control::DropGraph { id: GRAPH }));
    assert_eq!(test.engine.state.lock().held, 0);
}
