//! Tests of protocol violations, and of progress that is reported during the request for it.

mod failures;
mod graphs;
mod memory;

use std::{
    any::Any,
    sync::{OnceLock, mpsc::channel},
    thread,
};

use cuda_core::{
    DeviceInfo, Error, NoticeSink, Result,
    protocol::{
        AllocId, Answer, Capabilities, Feature, Foreign, FunctionId, GraphId, HostBlock, Launch,
        LaunchConfig, ModuleId, Notice, Region, Request, StreamId, Submission, Work,
    },
};
use cuda_lease::wire::{Ack, FrameBuffer, ImageKind, TransferId};

use super::*;
use crate::worker::reports::Sink;

/// The most submissions that the backend has at a time.
const BACKLOG: u64 = 4;

/// A backend that reports progress on another thread before the request for it returns.
struct Prompt {
    info: DeviceInfo,
    capabilities: Capabilities,
    reports: Arc<Reports>,
    engine: OnceLock<Weak<Engine>>,
    /// Whether it takes no submissions.
    refuses: AtomicBool,
}

// SAFETY: submissions have no effect, so they are complete when they are taken, and touch no memory.
unsafe impl Backend for Prompt {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, _: &Submission<'_>, _: &[Arc<HostBlock>]) -> Result<()> {
        let refused = Err(Error::OutOfHostMemory { requested: 1 });
        if self.refuses.load(Ordering::Relaxed) { refused } else { Ok(()) }
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        let Control::Want { ticket: Ticket { stream, number } } = control else { return Ok(()) };
        let engine = self.engine.get().and_then(Weak::upgrade).unwrap();
        let sink = Sink(self.reports.clone());
        let notice = Notice::Progress { stream, accepted: number, complete: number };
        // SAFETY: every submission is complete.
        let reported = thread::spawn(move || unsafe { sink.notice(notice) });
        // With commands held, the thread waits for the lock that the caller has.
        if !engine.is_holding.load(Ordering::Acquire) {
            reported.join().unwrap();
        }
        Ok(())
    }

    fn request(&self, _: Request, answer: Answer) {
        answer.give(Err(Error::unsupported(Feature::Request, "a test")));
    }

    unsafe fn peek(&self, _: StreamId) -> Result<u64> {
        Ok(u64::MAX)
    }

    unsafe fn block_until(&self, _: Ticket) -> Result<()> {
        Ok(())
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    fn close(&self, _: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {}
}

/// The limits of a test's session.
pub(in crate::worker) fn limits() -> Limits {
    Limits {
        submissions_in_flight: 64,
        host_bytes_in_flight: 1 << 20,
        memory: 1 << 20,
        streams: 4,
        module_bytes: 1 << 20,
    }
}

fn engine() -> Arc<Engine> {
    engine_and_backend().0
}

fn engine_and_backend() -> (Arc<Engine>, Arc<Prompt>) {
    let reports = Reports::new(channel().0);
    let mut capabilities = Capabilities::local(1 << 20);
    capabilities.submissions_in_flight = BACKLOG;
    let info = DeviceInfo::new("prompt", "reports progress at once");
    let (engine, refuses) = Default::default();
    let prompt = Prompt { info, capabilities, reports: reports.clone(), engine, refuses };
    let backend = Arc::new(prompt);
    let engine = Engine::new(backend.clone(), reports, limits());
    backend.engine.set(Arc::downgrade(&engine)).unwrap();
    engine
        .command(Command::Control(Control::CreateStream { id: STREAM, priority: 0 }), 64)
        .unwrap();
    (engine, backend)
}

const STREAM: StreamId = StreamId(1);

fn join(number: u64) -> Command<'static> {
    let ticket = Ticket { stream: STREAM, number };
    Command::Submit { ticket, after: Vec::new(), step: Step::Work(Work::Join) }
}

#[test]
fn no_command_is_held_while_progress_comes_in_time() {
    let engine = engine();
    for number in 1..=10 * BACKLOG {
        engine.command(join(number), 64).unwrap();
        assert!(!engine.is_holding.load(Ordering::Acquire), "command {number}");
    }
    assert!(engine.reports.backlog(STREAM).0 <= BACKLOG / 2);
}

#[test]
fn cancellation_of_unknown_work_is_ignored() {
    let engine = engine();
    engine.command(join(1), 64).unwrap();
    for (stream, first, last) in
        [(STREAM, 1, 1), (STREAM, 1, 99), (STREAM, 2, 0), (StreamId(9), 1, 1)]
    {
        let cancel = Control::Cancel { stream, first, last, downloads: true };
        engine.command(Command::Control(cancel), 64).unwrap();
    }
    engine.command(join(2), 64).unwrap();
}

#[test]
fn drain_is_answered_when_progress_comes_before_it_is_awaited() {
    let engine = engine();
    engine.command(join(1), 64).unwrap();
    engine.drain(7);
    // A request that is lost makes this wait endlessly.
    while engine.is_holding.load(Ordering::Acquire) {
        thread::yield_now();
    }
}

/// Otherwise a client that sends no bytes keeps the turn of its session from others.
#[test]
fn work_that_waits_for_its_client_stalls_and_goes_on_with_the_turn() {
    let engine = engine();
    // The opcodes of the messages for the supervisor.
    let told = || {
        engine.reports.outbox.push_acknowledgement(0);
        let mut frames = FrameBuffer::default();
        frames.extend(&engine.reports.outbox.wait().unnumbered);
        let frames = frames.take().unwrap();
        let opcodes = frames.iter().map(|frame| frame.header.opcode);
        opcodes.filter(|opcode| *opcode != Ack::OPCODE).collect::<Vec<_>>()
    };
    // Progress is reported on another thread, perhaps after the stall that it allows. Then the turn is wanted for nothing.
    let wait_for = |opcode| {
        while !told().contains(&opcode) {
            thread::yield_now();
        }
    };
    let arrives = |transfer| {
        let piece = engine.staging().take(8).unwrap().unwrap();
        engine.piece(TransferId(transfer), piece, 8).unwrap();
    };
    let upload = |number| {
        let to = Region { alloc: AllocId(1), offset: 0 };
        let step = Step::WriteBulk { to, transfer: TransferId(number), bytes: 8 };
        let ticket = Ticket { stream: STREAM, number };
        engine.command(Command::Submit { ticket, after: Vec::new(), step }, 64).unwrap();
    };
    let held = || engine.state.lock().held;
    (1..=3).for_each(upload);
    engine.drain(1);
    assert!(told().is_empty());
    // Nothing was tried since the turn was requested back, so it is wanted once, and then for nothing.
    engine.turn(false);
    wait_for(WantTurn::OPCODE);
    engine.turn(true);
    engine.drain(2);
    wait_for(Drained::OPCODE);
    // The bytes are there, and wait for the turn. It is wanted once, and again from a later supervisor.
    arrives(1);
    wait_for(WantTurn::OPCODE);
    arrives(2);
    assert!(told().is_empty());
    engine.rejoined();
    wait_for(WantTurn::OPCODE);
    engine.turn(false);
    engine.drain(3);
    wait_for(Drained::OPCODE);
    assert_eq!(held(), 3);
    engine.turn(true);
    engine.drain(4);
    wait_for(Drained::OPCODE);
    assert_eq!(held(), 1);
    // A command arrives only with the turn.
    arrives(3);
    assert_eq!(held(), 1);
    engine.command(join(4), 64).unwrap();
    engine.drain(5);
    wait_for(Drained::OPCODE);
    assert_eq!(held(), 0);
}

/// An engine with a write that waits for its bytes.
fn engine_with_write() -> Arc<Engine> {
    let engine = engine();
    let (to, transfer) = (Region { alloc: AllocId(1), offset: 0 }, TransferId(1));
    let step = Step::WriteBulk { to, transfer, bytes: 8 };
    let ticket = Ticket { stream: STREAM, number: 1 };
    engine.command(Command::Submit { ticket, after: Vec::new(), step }, 64).unwrap();
    engine
}

/// An engine with a write that waits for its bytes, whose session gives its turn back.
fn engine_without_turn() -> Arc<Engine> {
    let engine = engine_with_write();
    engine.turn(false);
    engine
}

/// The bytes of that write arrive.
fn write_arrives(engine: &Engine) {
    let piece = engine.staging().take(8).unwrap().unwrap();
    engine.piece(TransferId(1), piece, 8).unwrap();
}

/// Otherwise each command of the batch looks at all that are held.
#[test]
fn held_commands_run_at_the_end_of_a_batch() {
    let engine = engine_with_write();
    engine.begin_batch();
    write_arrives(&engine);
    engine.command(Command::Control(Control::UnloadModule { id: ModuleId(1) }), 64).unwrap();
    assert_eq!(engine.state.lock().held, 1);
    engine.end_batch();
    assert_eq!(engine.state.lock().held, 0);
}

/// Otherwise a session that has no turn, and to which something arrives beside the request, keeps others from the device.
#[test]
fn drain_in_a_batch_is_answered_without_the_turn() {
    let engine = engine_without_turn();
    engine.drain(1);
    assert!(engine.state.lock().turn == Turn::Wanted);
    engine.begin_batch();
    engine.drain(2);
    write_arrives(&engine);
    engine.end_batch();
    assert_eq!(engine.state.lock().drain, None);
}

/// Otherwise a session whose worker reads late does nothing in its turns.
#[test]
fn held_commands_run_in_a_turn_that_begins_and_ends_in_one_batch() {
    let engine = engine_without_turn();
    write_arrives(&engine);
    assert_eq!(engine.state.lock().held, 1);
    engine.begin_batch();
    engine.turn(true);
    engine.turn(false);
    engine.end_batch();
    assert_eq!(engine.state.lock().held, 0);
}

#[test]
fn waiting_queries_are_limited() {
    let engine = engine();
    let module = ModuleId(1);
    let kind = ImageKind::Ptx;
    engine.command(Command::LoadModule { id: module, kind, hash: [0; 32], bytes: 1 }, 64).unwrap();
    let ask = |id| engine.command(Command::Request { id, request: Request::Loaded { module } }, 64);
    let refused = (0..10_000).find_map(|id| ask(id).err()).unwrap();
    assert!(refused.to_string().contains("queries wait"), "{refused}");
}

#[test]
fn query_for_a_module_without_code_is_answered_when_the_module_is_unloaded() {
    let engine = engine();
    let (module, kind) = (ModuleId(1), ImageKind::Ptx);
    engine.command(Command::LoadModule { id: module, kind, hash: [0; 32], bytes: 1 }, 64).unwrap();
    let request = Request::Loaded { module };
    engine.command(Command::Request { id: 1, request }, 64).unwrap();
    assert_eq!(engine.state.lock().modules.waiting_queries(), 1);
    engine.command(Command::Control(Control::UnloadModule { id: module }), 64).unwrap();
    assert_eq!(engine.state.lock().modules.waiting_queries(), 0);
}

/// A resumed session repeats no command, but its client may be another program.
#[test]
fn second_drop_of_a_module_or_a_graph_has_no_effect() {
    let engine = engine();
    let (id, kind) = (ModuleId(1), ImageKind::Ptx);
    engine.command(Command::LoadModule { id, kind, hash: [0; 32], bytes: 1 }, 64).unwrap();
    for _ in 0..2 {
        engine.command(Command::Control(Control::UnloadModule { id }), 64).unwrap();
        engine.command(Command::Control(Control::DropGraph { id: GraphId(1) }), 64).unwrap();
    }
}

#[test]
fn ids_of_streams_rise_so_that_a_ticket_never_names_a_later_stream() {
    let engine = engine();
    let create = |id| {
        engine
            .command(Command::Control(Control::CreateStream { id: StreamId(id), priority: 0 }), 64)
    };
    create(9).unwrap();
    engine.command(Command::Control(Control::RetireStream { id: StreamId(9) }), 64).unwrap();
    for used in [9, STREAM.0, 0] {
        assert!(
            create(used).unwrap_err().to_string().contains("ids of streams must rise"),
            "{used}"
        );
    }
    let after = |stream, number| vec![Ticket { stream: StreamId(stream), number }];
    let join = |number, after| {
        let ticket = Ticket { stream: STREAM, number };
        engine.command(Command::Submit { ticket, after, step: Step::Work(Work::Join) }, 64)
    };
    // Streams that were removed or skipped have completed everything.
    join(1, after(9, 5)).unwrap();
    join(2, after(4, 5)).unwrap();
    let refused = join(3, after(10, 1)).unwrap_err().to_string();
    assert!(refused.contains("may only name earlier submissions"), "{refused}");
}

#[test]
fn no_command_follows_the_retirement_of_its_stream() {
    let engine = engine();
    let upload = Step::WriteBulk {
        to: Region { alloc: AllocId(1), offset: 0 },
        transfer: TransferId(1),
        bytes: 8,
    };
    let ticket = Ticket { stream: STREAM, number: 1 };
    // The bytes do not come, so the retirement is held behind the upload.
    engine.command(Command::Submit { ticket, after: Vec::new(), step: upload }, 64).unwrap();
    engine.command(Command::Control(Control::RetireStream { id: STREAM }), 64).unwrap();
    let late = [
        join(2),
        Command::Control(Control::Free { id: AllocId(1), stream: STREAM, after: Vec::new() }),
        Command::Control(Control::RetireStream { id: STREAM }),
    ];
    for command in late {
        assert!(engine.command(command, 64).unwrap_err().to_string().contains("does not exist"));
    }
}

#[test]
fn bytes_on_the_bulk_lane_belong_to_the_upload_that_still_waits_for_them() {
    let engine = engine();
    let module = ModuleId(1);
    let kind = ImageKind::Ptx;
    engine.command(Command::LoadModule { id: module, kind, hash: [0; 32], bytes: 1 }, 64).unwrap();
    let to = Region { alloc: AllocId(1), offset: 0 };
    let submit = |number, step| {
        let ticket = Ticket { stream: STREAM, number };
        engine.command(Command::Submit { ticket, after: Vec::new(), step }, 64).unwrap();
    };
    // The code does not come, so everything behind the launch is held.
    submit(1, Step::Work(Work::Launch(launch(module))));
    submit(2, Step::Write { to, bytes: &[1; 4] });
    // A client may use 0, and may use the id of an upload again whose bytes have arrived.
    for bytes in [8, 16] {
        submit(bytes / 8 + 2, Step::WriteBulk { to, transfer: TransferId(0), bytes });
        assert_eq!(engine.expected(TransferId(0)), Some((0, bytes)));
        let piece = engine.staging().take(bytes as usize).unwrap().unwrap();
        engine.piece(TransferId(0), piece, bytes as usize).unwrap();
    }
}

/// Otherwise a read of memory that the rest of the upload should have written returns its earlier contents.
#[test]
fn upload_of_which_a_piece_is_refused_loses_all_that_it_writes() {
    let (engine, backend) = engine_and_backend();
    let (id, transfer) = (AllocId(1), TransferId(1));
    let at = |number| Ticket { stream: STREAM, number };
    let allocate = Control::Allocate { id, bytes: 24, at: at(1) };
    engine.command(Command::Control(allocate), 64).unwrap();
    let region = |offset| Region { alloc: id, offset };
    let step = Step::WriteBulk { to: region(0), transfer, bytes: 24 };
    engine.command(Command::Submit { ticket: at(2), after: Vec::new(), step }, 64).unwrap();
    for refuses in [false, true, false] {
        backend.refuses.store(refuses, Ordering::Relaxed);
        let piece = engine.staging().take(8).unwrap().unwrap();
        engine.piece(transfer, piece, 8).unwrap();
    }
    let mut state = engine.state.lock();
    assert_eq!(state.held, 0);
    for offset in [0, 8, 16] {
        let read = Work::Copy { from: region(offset), to: region(offset), bytes: 8 };
        assert!(state.objects.check(&read).is_some(), "offset {offset}");
    }
    state.objects.remove(id);
}

#[test]
fn bytes_of_commands_that_wait_are_limited() {
    let engine = engine();
    let (module, kind) = (ModuleId(1), ImageKind::Ptx);
    engine.command(Command::LoadModule { id: module, kind, hash: [0; 32], bytes: 1 }, 64).unwrap();
    let launch = |number| {
        let (ticket, step) =
            (Ticket { stream: STREAM, number }, Step::Work(Work::Launch(launch(module))));
        engine.command(Command::Submit { ticket, after: Vec::new(), step }, 1 << 20)
    };
    // The code does not come, so every launch is held.
    let refused = (1..1000).find_map(|number| launch(number).err().map(|error| (number, error)));
    let (number, error) = refused.unwrap();
    assert_eq!(number, 1 + (HELD_BYTES >> 20) as u64);
    assert!(error.to_string().contains("bytes of commands wait"), "{error}");
}

/// Every other command is a launch, which waits, and the others cancel. Those that do not fit are ignored.
#[test]
fn cancellations_that_wait_are_merged_and_limited() {
    let engine = engine();
    let (module, kind) = (ModuleId(1), ImageKind::Ptx);
    engine.command(Command::LoadModule { id: module, kind, hash: [0; 32], bytes: 1 }, 64).unwrap();
    let launched = |number| {
        let (ticket, step) =
            (Ticket { stream: STREAM, number }, Step::Work(Work::Launch(launch(module))));
        engine.command(Command::Submit { ticket, after: Vec::new(), step }, 64).unwrap();
    };
    let cancel = |first, last| {
        let cancel = Control::Cancel { stream: STREAM, first, last, downloads: false };
        engine.command(Command::Control(cancel), 64).unwrap();
    };
    let held = || engine.state.lock().held;
    (1..=4).for_each(launched);
    (1..=4).for_each(|number| cancel(number, number));
    assert_eq!(held(), 4 + 1);
    cancel(1, 1); // is not next to the last one
    assert_eq!(held(), 4 + 2);
    let count = HELD_CANCELS as u64;
    for number in 5..=count {
        launched(number);
        cancel(number, number);
    }
    // The launches, and a cancellation behind each of them until half of the limit was reached.
    assert_eq!(held(), HELD_CANCELS + HELD_CANCELS / 2 - 1);
}

#[test]
fn code_of_modules_is_limited() {
    let engine = engine();
    let hash = [7; 32];
    let load = |id| {
        let load = Command::LoadModule { id: ModuleId(id), kind: ImageKind::Cubin, hash, bytes: 1 };
        engine.command(load, 64).unwrap();
    };
    (1..=60).for_each(load);
    // The client has stated too few bytes.
    let code = vec![0; 40 << 20];
    engine.blob(hash, code.len() as u64, &code);
    let refused = |id| engine.state.lock().modules.refusal(ModuleId(id));
    let loaded: Vec<_> = (1..=60).filter(|id| refused(*id).is_none()).collect();
    assert_eq!(loaded.len(), CODE as usize / (40 << 20));
    let error = (1..=60).find_map(refused).unwrap().to_string();
    assert!(error.contains("unload modules"), "{error}");
    // A launch of a refused module is not held.
    assert!((1..=60).all(|id| {
        let state = engine.state.lock();
        state.modules.refusal(ModuleId(id)).is_none() || state.modules.can_launch(ModuleId(id))
    }));
    for id in loaded {
        engine.command(Command::Control(Control::UnloadModule { id: ModuleId(id) }), 64).unwrap();
    }
    load(61);
    engine.blob(hash, code.len() as u64, &code);
    assert_eq!(refused(61).map(|error| error.to_string()), None);
}

fn launch(module: ModuleId) -> Launch<'static> {
    Launch {
        function: FunctionId { module, entry: 0 },
        config: LaunchConfig::new(1, 1),
        params: Default::default(),
        relocations: Default::default(),
        variables: Default::default(),
    }
}
