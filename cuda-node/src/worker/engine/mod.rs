//! The engine: takes commands in their order, holds those that cannot run yet, and submits the others to the backend.
//!
//! A command arrives in [`Engine::command`], which also takes the controls and the requests of the client. The method
//! `put` keeps a command until its predecessors and its bytes are there, and `run` passes its work to the backend. Of
//! the files beside this one, `copies` cuts copies in pieces, `graphs` creates and launches graphs, and `state` and
//! `memory` have the data. All of the data is behind the lock of one `State`.

mod copies;
mod graphs;
mod memory;
mod state;

pub(super) use memory::Memory;

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use cuda_core::{
    Backend, Backlog, Error, MemoryInfo, Ticket,
    order::uses_of,
    protocol::{
        AllocId, Answer, Control, Feature, ModuleId, PoolId, PoolSpec, Reply, Request, StreamId,
        Submission, Use, Work,
    },
};
use cuda_lease::{
    session::SessionError,
    wire::{Command, Event, Hash, ImageKind, Limits, Step, Variants},
};
use parking_lot::{Condvar, Mutex};

use self::{
    memory::OBJECT_LIMIT,
    state::{
        BackendStep, Download, Item, State, Stream, Task, Turn, Upload, has_module, violation,
    },
};
use super::{
    graphs::Awaited,
    messages::{Drained, NeedCode, WantTurn},
    modules::{CODE, Load, Ready},
    quota::Quota,
    reports::{AfterProgress, Freed, Reports, Stage, StepMemory},
    staging::Staging,
};

/// The maximum number of bytes of each staging pool: uploads, downloads, and bytes in commands. The last one may use as
/// much ordinary memory again (see `staging`).
const STAGING: usize = 64 << 20;

/// The maximum number of submissions that the backend has at a time, in a session that takes turns and has few streams. They
/// complete before another session has its turn.
const TURN_BACKLOG: u64 = 256;

/// The maximum number of them that are of one stream.
const TURN_BACKLOG_OF_STREAM: u64 = 64;

/// The maximum number of submissions of each stream in a session with many streams, most of which may be idle.
const TURN_BACKLOG_OF_MANY: u64 = 4;

/// The maximum number of retired streams whose work is not complete.
const RETIRED_LIMIT: usize = 1024;

/// The maximum number of requests that wait for an answer.
const QUERY_LIMIT: usize = 4096;

/// The maximum number of requests about pools that wait for an answer.
const POOL_QUERY_LIMIT: usize = 256;

/// The number of frees of a stream that are not complete, from which on later ones of it wait.
const FREE_LIMIT: usize = 4096;

/// The same of all streams. The CPU device looks at each of them when it searches for work that is not needed.
const ALL_FREES_LIMIT: usize = 4 * FREE_LIMIT;

/// The maximum number of commands that a session may have waiting.
const HELD_LIMIT: usize = 64 << 10;

/// The number of commands that may wait for a cancellation to wait too. The others are ignored, so that a hint does not
/// end a session.
const HELD_CANCELS: usize = HELD_LIMIT / 2;

/// The maximum number of bytes of the commands that a session may have waiting.
const HELD_BYTES: usize = 128 << 20;

/// The number of held commands that a call of [`advance`](Engine::advance) looks at before it pauses. If each command comes
/// after one of a stream that the call looks at later, the call carries out one command for each look at all streams. A
/// predecessor that the call finds submitted counts too, and so do [`BYTES_OF_LOOK`] bytes of a command that it carries
/// out.
const LOOKS: usize = 16 << 10;

/// See [`LOOKS`]. A command may have thousands of predecessors and operands.
const BYTES_OF_LOOK: usize = 64;

/// The number of times that the commands of a batch make room for later ones of it. Each time looks at all streams.
const EARLY_FLUSHES: u32 = 4;

/// Carries out the commands of one session on a backend.
pub(super) struct Engine {
    backend: Arc<dyn Backend>,
    reports: Arc<Reports>,
    limits: Limits,
    quota: Arc<Quota>,
    /// Whether an allocation uses memory whose free is earlier in the order of its stream. The CPU device makes memory
    /// at once instead.
    reuses_in_order: bool,
    /// Counts the code of modules.
    code: Arc<Quota>,
    /// The number of queries that the backend has not answered.
    asked: Arc<AtomicUsize>,
    /// The maximum number of submissions of a stream that the backend has at a time.
    backlog: u64,
    /// Staging memory of bytes that came with their commands. It is separate: they may wait for an upload on the bulk
    /// lane.
    inline: Arc<Staging>,
    uploads: Arc<Staging>,
    downloads: Arc<Staging>,
    state: Mutex<State>,
    /// An upload was announced, a trim was carried out, or the session ended.
    announced: Condvar,
    /// Whether commands are held. Readable without the lock.
    is_holding: AtomicBool,
    /// See [`is_paused`](Self::is_paused).
    is_paused: AtomicBool,
}

impl Engine {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        reports: Arc<Reports>,
        limits: Limits,
    ) -> Arc<Self> {
        let capabilities = backend.capabilities();
        let backlog = match capabilities.cancels {
            // Work is dead because of the frees behind it, so the backend gets both as soon as they arrive.
            true => capabilities.submissions_in_flight.max(limits.submissions_in_flight),
            false => capabilities.submissions_in_flight,
        };
        let engine = Arc::new(Self {
            backlog: backlog.max(1),
            asked: Arc::default(),
            reuses_in_order: backend.info().driver.is_some() && capabilities.pools > 0,
            inline: Staging::new(backend.clone(), STAGING),
            uploads: Staging::new(backend.clone(), STAGING),
            downloads: Staging::new(backend.clone(), STAGING),
            backend,
            reports: reports.clone(),
            quota: Arc::new(Quota::new("", limits.memory)),
            code: Arc::new(Quota::new(" for the code of modules; unload modules", CODE)),
            limits,
            state: Mutex::default(),
            announced: Condvar::new(),
            is_holding: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
        });
        let after_progress: Weak<dyn AfterProgress> = Arc::<Self>::downgrade(&engine);
        reports.attach(after_progress);
        engine
    }

    /// A batch of commands has arrived. Until [`end_batch`](Self::end_batch), held commands stay held: each command of the
    /// batch would look at all of them, and a request for the turn waits behind the batch.
    pub(super) fn begin_batch(&self) {
        let mut state = self.state.lock();
        state.sampler.begin();
        (state.is_in_batch, state.early_flushes) = (true, 0);
    }

    /// The commands of the batch were taken.
    pub(super) fn end_batch(&self) {
        self.flush(&mut self.state.lock());
    }

    /// Does what the commands of a batch have left to its end.
    fn flush(&self, state: &mut State) {
        state.is_in_batch = false;
        match std::mem::take(&mut state.is_due) {
            true => self.advance(state),
            false => self.settle(state),
        }
    }

    /// Does what the earlier commands of a batch have left to its end.
    fn flush_early(&self, state: &mut State) {
        if state.is_in_batch {
            self.flush(state);
            (state.is_in_batch, state.is_due) = (true, true);
        }
    }

    /// Takes the next command of the client, whose frame has `bytes` bytes.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub(super) fn command(&self, command: Command<'_>, bytes: usize) -> Result<(), SessionError> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.command_bytes = bytes;
        // Commands arrive only while the session has the turn.
        if state.turn != Turn::Has {
            self.set_turn(state, Turn::Has);
        }
        match command {
            Command::Submit { ticket, after, step } => {
                state.expect(ticket)?;
                state.check(&after, ticket.stream)?;
                self.submit(state, ticket, after, step)?;
            }
            Command::Control(control) => self.take_control(state, control)?,
            Command::LoadModule { id, kind, hash, bytes } => {
                self.load_module(state, id, kind, hash, bytes)?;
            }
            Command::CreateGraph { id, nodes } => self.create_graph(state, id, nodes)?,
            Command::Request { id, request } => self.request(state, id, request)?,
        }
        // Not at the end of the batch: the next command may free what a graph uses.
        if state.graphs.has_unchecked() {
            self.create_due_graphs(state);
        }
        self.settle(state);
        Ok(())
    }

    /// The device memory of the lease.
    pub(super) fn quota(&self) -> &Arc<Quota> {
        &self.quota
    }

    /// The code of modules.
    pub(super) fn code(&self) -> &Arc<Quota> {
        &self.code
    }

    /// The staging memory of uploads.
    pub(super) fn staging(&self) -> &Arc<Staging> {
        &self.uploads
    }

    /// Ends all waits: no more commands come.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.announced.notify_all();
        self.uploads.close();
    }

    fn submit(
        &self,
        state: &mut State,
        ticket: Ticket,
        after: Vec<Ticket>,
        step: Step<'_>,
    ) -> Result<(), SessionError> {
        let number = ticket.number;
        let task = match step {
            Step::WriteBulk { to, transfer, bytes } => {
                if bytes > 0 {
                    state.check_unused(transfer)?;
                    state.uploads.insert(transfer, ticket);
                }
                self.announced.notify_all();
                Task::Upload(Upload::new(number, to, Some(transfer), bytes))
            }
            Step::Write { to, bytes } => {
                return self.write(state, ticket, after, to, bytes);
            }
            Step::Read { from, transfer, bytes } => {
                Task::Download(Download { number, from, transfer, bytes, submitted: 0 })
            }
            Step::Graph { graph, changes } => {
                let changes = self.changes(state, changes)?;
                if self.can_run(state, ticket.stream, &after)
                    && self.can_launch(state, graph, &changes)
                    && self.has_credit_for_one(state, ticket.stream)
                {
                    self.launch_graph(state, ticket, &after, graph, &changes);
                    return Ok(());
                }
                Task::Graph { number, graph, changes }
            }
            Step::Work(work) => {
                // The usual case, without a copy of the work.
                if self.can_run(state, ticket.stream, &after)
                    && has_module(state, &work)
                    && self.has_credit_for_one(state, ticket.stream)
                {
                    _ = self.run(state, BackendStep::whole(ticket, &after, &work));
                    return Ok(());
                }
                Task::Work { number, work: work.into_owned() }
            }
        };
        self.put(state, ticket.stream, after, task)
    }

    /// Passes a control on. One that fails shows in the submissions that need it.
    fn control(&self, control: Control) {
        // SAFETY: commands are carried out in the client's order, and the rules of the module apply to what it frees.
        _ = unsafe { self.backend.control(control) };
    }
}

impl AfterProgress for Engine {
    fn after_progress(&self) {
        if self.is_holding.load(Ordering::SeqCst) {
            self.advance(&mut self.state.lock());
            // Another thread may wait for a trim.
            self.announced.notify_all();
        }
    }
}

/// Whether an item at the head of its stream was carried out.
#[derive(PartialEq, Eq)]
enum Outcome {
    Done,
    Waits,
}

/// Holds commands in the order of their streams, until they can run.
impl Engine {
    /// Carries a command out, or holds it.
    fn put(
        &self,
        state: &mut State,
        stream: StreamId,
        after: Vec<Ticket>,
        task: Task,
    ) -> Result<(), SessionError> {
        let (resets, arrived, bytes) = (state.resets, state.sampler.now, state.command_bytes);
        let found = state.streams.get(&stream);
        let last = found.map_or(0, |stream| stream.last);
        let first = found.is_none_or(|stream| stream.held.is_empty());
        let mut item = Item { resets, arrived, bytes, last, after, submitted: 0, task };
        if first && self.try_run(state, stream, &mut item) == Outcome::Done {
            return Ok(());
        }
        if (state.held == HELD_LIMIT || state.held_bytes + bytes > HELD_BYTES)
            && state.early_flushes < EARLY_FLUSHES
        {
            state.early_flushes += 1;
            self.flush_early(state);
        }
        if state.held == HELD_LIMIT {
            return Err(violation(format!(
                "more than {HELD_LIMIT} commands wait; wait for earlier work before sending more"
            )));
        }
        if state.held_bytes + bytes > HELD_BYTES {
            return Err(violation(format!(
                "more than {HELD_BYTES} bytes of commands wait; wait for earlier work before sending more"
            )));
        }
        // `State::stream` would refuse the retirement of a stream, which is held too.
        let Some(queue) = state.streams.get_mut(&stream) else {
            return Err(violation(format!("stream {} does not exist", stream.0)));
        };
        queue.held.push_back(item);
        state.held += 1;
        state.held_bytes += bytes;
        Ok(())
    }

    /// Carries out held commands until none can run, or [pauses](Self::pause), or lets the end of the batch do so.
    fn advance(&self, state: &mut State) {
        state.is_due = state.is_in_batch;
        if state.is_due {
            return;
        }
        match state.turn {
            Turn::Has | Turn::GoesOn => {}
            Turn::GivesBack => {
                self.create_loaded_graphs(state);
                return self.settle(state);
            }
            Turn::Stalled => {
                self.want_turn(state);
                return self.settle(state);
            }
            Turn::Wanted => return self.settle(state),
        }
        state.sampler.begin();
        self.is_paused.store(false, Ordering::SeqCst);
        // Once: there may be thousands of modules, and the end of a load calls this again.
        self.create_loaded_graphs(state);
        let mut looks = 0;
        'passes: loop {
            let mut progressed = false;
            let holding: Vec<_> = state
                .streams
                .iter()
                .filter(|(_, stream)| !stream.held.is_empty())
                .map(|(id, _)| *id)
                .collect();
            for id in holding {
                while let Some(mut item) =
                    state.streams.get_mut(&id).and_then(|stream| stream.held.pop_front())
                {
                    let before = item.submitted;
                    let outcome = self.try_run(state, id, &mut item);
                    looks += 1 + item.submitted - before;
                    if outcome == Outcome::Waits {
                        if let Some(stream) = state.streams.get_mut(&id) {
                            stream.held.push_front(item);
                        }
                    } else {
                        state.held -= 1;
                        state.held_bytes -= item.bytes;
                        looks += item.bytes / BYTES_OF_LOOK;
                        progressed = true;
                    }
                    // There are fewer streams than looks, so some commands have come further.
                    if looks >= LOOKS {
                        self.pause();
                        break 'passes;
                    }
                    if outcome == Outcome::Waits {
                        break;
                    }
                }
            }
            progressed |= self.create_due_graphs(state);
            if self.reset_if_due(state) {
                // It looks at each stream here and on the device.
                looks += state.streams.len();
                progressed = true;
            }
            if !progressed {
                break;
            }
            if looks >= LOOKS {
                self.pause();
                break;
            }
        }
        self.settle(state);
    }

    /// Leaves held commands to the next call of [`advance`](Self::advance), because it takes long to carry them out. The
    /// thread that writes events makes that call. Meanwhile the thread that reads the commands takes the request for the
    /// turn, which is behind them.
    fn pause(&self) {
        self.is_paused.store(true, Ordering::SeqCst);
        self.reports.outbox.wake();
    }

    /// Whether held commands wait for the next call of `advance`.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::SeqCst)
    }

    /// Updates the flag `is_holding`. A progress report that saw the flag unset only updated the numbers in `reports`
    /// and did not advance held commands. So this advances them once after the flag is set.
    fn settle(&self, state: &mut State) {
        if state.is_in_batch {
            return;
        }
        // Once for all commands that wait for frees.
        if std::mem::take(&mut state.wants_frees) {
            self.want_frees(state);
        }
        self.report_drained(state);
        let is_holding = state.held > 0
            || !state.waiting_resets.is_empty()
            || state.drain.is_some()
            || state.awaits_trims
            // The end of a module's load makes a waiting graph due.
            || state.graphs.has_waiting();
        // Stored under the lock alone.
        if self.is_holding.load(Ordering::Relaxed) == is_holding {
            return;
        }
        // SeqCst: `Ready::end` stores its flag and then loads this one.
        self.is_holding.store(is_holding, Ordering::SeqCst);
        if is_holding {
            self.advance(state);
        }
    }

    /// Whether a command at the head of `stream` finds its predecessors submitted.
    fn can_run(&self, state: &State, stream: StreamId, after: &[Ticket]) -> bool {
        let submitted = |ticket: &Ticket| self.reports.stage(*ticket) != Stage::Held;
        state.waiting_resets.is_empty()
            && state.streams.get(&stream).is_some_and(|stream| stream.held.is_empty())
            && after.iter().all(submitted)
    }

    /// As [`has_credit`](Self::has_credit), for a command that becomes one submission. Usually it does not query the
    /// backend.
    fn has_credit_for_one(&self, state: &mut State, stream: StreamId) -> bool {
        if let Some(found) = state.streams.get_mut(&stream)
            && found.credit > 0
        {
            found.credit -= 1;
            return true;
        }
        let has_credit = self.has_credit(state, stream);
        let limit = self.backlog(state);
        if has_credit && let Some(found) = state.streams.get_mut(&stream) {
            let backlog = self.reports.backlog(stream).0.max(self.reports.in_flight(stream));
            let half = limit / 2;
            // At half of the limit `has_credit` requests progress.
            let until = if backlog < half { half } else { limit };
            found.credit = until.saturating_sub(backlog + 1);
        }
        has_credit
    }

    /// Whether the backend takes another submission of a stream. Requests a progress report when half of the credit is
    /// used, so the report usually arrives before the credit is exhausted.
    fn has_credit(&self, state: &mut State, stream: StreamId) -> bool {
        if let Some(found) = state.streams.get_mut(&stream) {
            found.credit = 0;
        }
        let (backlog, taken) = self.reports.backlog(stream);
        let limit = self.backlog(state);
        let (complete, half) = (taken - backlog, (limit / 2).max(1));
        // Work that failed waits for the work before it without a number of the backend.
        let in_flight = self.reports.in_flight(stream);
        if backlog > 0
            && backlog.max(in_flight) >= half
            && let Some(found) = state.streams.get_mut(&stream)
            && found.requested <= complete
        {
            let number = (complete + half).min(taken);
            found.requested = number;
            self.control(Control::Want { ticket: Ticket { stream, number } });
        }
        // The submission itself may be in flight with its first parts.
        backlog < limit && in_flight <= limit
    }

    /// The maximum number of submissions of a stream that the backend has at a time.
    fn backlog(&self, state: &State) -> u64 {
        if !state.takes_turns {
            return self.backlog;
        }
        let of_stream = TURN_BACKLOG / state.streams.len().max(1) as u64;
        self.backlog.min(of_stream.clamp(TURN_BACKLOG_OF_MANY, TURN_BACKLOG_OF_STREAM))
    }

    /// Whether the submissions that a held command comes after are submitted.
    fn has_predecessors(&self, item: &mut Item) -> bool {
        let left = item.after.get(item.submitted..).unwrap_or_default();
        let submitted = |ticket: &&Ticket| self.reports.stage(**ticket) != Stage::Held;
        item.submitted += left.iter().take_while(submitted).count();
        item.submitted == item.after.len()
    }

    /// Tries to carry out the first command of a stream.
    fn try_run(&self, state: &mut State, stream: StreamId, item: &mut Item) -> Outcome {
        let resets_left = state.waiting_resets.len() as u64;
        if item.resets > state.resets - resets_left
            || !self.has_predecessors(item)
            // Controls need no credit.
            || (item.number().is_some() && !self.has_credit(state, stream))
        {
            return Outcome::Waits;
        }
        state.sampler.arrived = item.arrived;
        let after = std::mem::take(&mut item.after);
        let outcome = self.try_task(state, stream, &after, &mut item.task);
        item.after = after;
        if outcome == Outcome::Done
            && let Some(number) = item.number()
        {
            self.want_held(state, Ticket { stream, number });
        }
        outcome
    }

    fn try_task(
        &self,
        state: &mut State,
        stream: StreamId,
        after: &[Ticket],
        task: &mut Task,
    ) -> Outcome {
        match task {
            Task::Work { number, work } => {
                if !has_module(state, work) {
                    return Outcome::Waits;
                }
                let ticket = Ticket { stream, number: *number };
                _ = self.run(state, BackendStep::whole(ticket, after, work));
                Outcome::Done
            }
            Task::Graph { number, graph, changes } => {
                if !self.can_launch(state, *graph, changes) {
                    return Outcome::Waits;
                }
                let ticket = Ticket { stream, number: *number };
                self.launch_graph(state, ticket, after, *graph, changes);
                Outcome::Done
            }
            Task::Upload(upload) => self.upload(state, stream, after, upload),
            Task::Download(download) => self.download(state, stream, after, download),
            Task::Allocate { number, pool, id, bytes } => {
                if !self.has_memory(state, stream, *pool, *id, *bytes) {
                    return Outcome::Waits;
                }
                self.allocate(state, Ticket { stream, number: *number }, *pool, *id, *bytes);
                Outcome::Done
            }
            // The allocation waits on another stream.
            Task::Free { id } if state.objects.is_pending(*id) => Outcome::Waits,
            Task::Free { .. }
                if self.reports.frees(stream) >= FREE_LIMIT
                    || self.reports.all_frees() >= ALL_FREES_LIMIT =>
            {
                state.wants_frees = true;
                Outcome::Waits
            }
            Task::Free { id } => {
                self.free(state, stream, after, *id);
                Outcome::Done
            }
            Task::Cancel { first, last, downloads } => {
                if let Some((first, last)) = self.reports.numbers_of(stream, *first, *last) {
                    self.control(Control::Cancel { stream, first, last, downloads: *downloads });
                }
                Outcome::Done
            }
            Task::Retire => {
                state.streams.remove(&stream);
                if let Some(number) = self.reports.retire(stream) {
                    self.control(Control::Want { ticket: Ticket { stream, number } });
                }
                self.control(Control::RetireStream { id: stream });
                Outcome::Done
            }
        }
    }
}

/// Passes work, allocations and frees to the backend.
impl Engine {
    /// Submits a step, or a part of it.
    ///
    /// # Errors
    /// The step has failed, and its failure was reported. The memory that the part should have written is poisoned.
    fn run(&self, state: &mut State, step: BackendStep<'_>) -> Result<(), Error> {
        if let Some(error) = state.objects.check(step.work) {
            let BackendStep { ticket, after, work, memory, .. } = step;
            drop(memory);
            self.skip(state, ticket, after, &uses_of(work), error.clone());
            return Err(error);
        }
        self.pass_on(state, step)
    }

    /// As [`run`](Self::run), for work that was checked.
    fn pass_on(&self, state: &mut State, step: BackendStep<'_>) -> Result<(), Error> {
        let BackendStep { ticket, after, work, host, is_last, memory } = step;
        let number = self.reports.begin(ticket, is_last, memory, state.sampler.now);
        let after = self.translate(after);
        let submission = Submission { ticket: Ticket { number, ..ticket }, after: &after, work };
        // SAFETY: the blocks in `host` are staging memory of this submission alone, or memory of the graph that it
        // launches. `reports` keeps them until the backend has reported it complete. The rules about device memory
        // concern only the memory of this lease (see the rules of the module). Streams are
        // retired, graphs dropped and modules unloaded under the lock that is held.
        match unsafe { self.backend.submit(&submission, host) } {
            Ok(()) => {
                if is_last && let Some(time) = state.sampler.submitted() {
                    self.reports.telemetry.queue(time, &self.reports.outbox);
                }
                Ok(())
            }
            Err(error) => {
                let error = self.reports.cause(error);
                state.objects.spread(&uses_of(work), &error);
                self.give_up(ticket, &after, error.clone());
                Err(error)
            }
        }
    }

    /// The step that was [begun](Reports::begin) last has failed. Later work that comes after it relies on what it comes
    /// after itself, on other streams: a join keeps this order.
    fn give_up(&self, ticket: Ticket, after: &[Ticket], error: Error) {
        if !after.is_empty() {
            let number = self.reports.give_up(ticket, error.clone());
            let at = Ticket { number, ..ticket };
            // SAFETY: a join uses nothing.
            let join = unsafe {
                self.backend.submit(&Submission { ticket: at, after, work: &Work::Join }, &[])
            };
            if join.is_ok() {
                return;
            }
        }
        self.reports.refuse(ticket, error);
    }

    /// A submission failed before it reached the backend: the contents that it should have written are lost.
    fn skip(
        &self,
        state: &mut State,
        ticket: Ticket,
        after: &[Ticket],
        uses: &[Use],
        error: Error,
    ) {
        state.objects.spread(uses, &error);
        let after = self.translate(after);
        if after.is_empty() {
            return self.reports.skip(ticket, error);
        }
        self.reports.begin(ticket, true, StepMemory::Nothing, state.sampler.now);
        self.give_up(ticket, &after, error);
    }

    /// The tickets of the backend for tickets of the client.
    fn translate(&self, after: &[Ticket]) -> Vec<Ticket> {
        let ticket = |ticket: &Ticket| match self.reports.stage(*ticket) {
            Stage::Submitted(number) if number > 0 => Some(Ticket { number, ..*ticket }),
            _ => None,
        };
        after.iter().filter_map(ticket).collect()
    }

    /// Whether the memory of an allocation is there, or the allocation is refused. Memory that was freed is there when
    /// the free is complete. For an allocation of the same stream, it is there at once if the device reuses it in the
    /// order of the stream. Memory that other pools keep is there when they are trimmed.
    fn has_memory(
        &self,
        state: &mut State,
        stream: StreamId,
        pool: PoolId,
        id: AllocId,
        bytes: u64,
    ) -> bool {
        let Some(charge) = state.objects.pending(id) else { return true };
        if charge.waits() && self.reuses_in_order {
            self.reports.take_over(stream, pool, charge);
        }
        if charge.waits() {
            state.wants_frees = true;
            return false;
        }
        self.has_trimmed(state, pool, bytes)
    }

    /// Whether the other pools are trimmed that have to be before an allocation: the pools together must not reserve
    /// more than the quota. Requests the trims.
    fn has_trimmed(&self, state: &mut State, pool: PoolId, bytes: u64) -> bool {
        self.end_pools(state);
        let exceeding = state.pools.exceeding(pool, bytes, self.quota.limit_and_used().0);
        exceeding.into_iter().for_each(|pool| self.trim(state, pool));
        !state.pools.is_trimming()
    }

    /// Requests the progress that completes the first frees, unless it was requested.
    fn want_frees(&self, state: &State) {
        for ticket in self.reports.first_frees() {
            // The progress of a retired stream is requested already.
            if state.streams.contains_key(&ticket.stream) {
                self.control(Control::Want { ticket });
            }
        }
    }

    /// Takes memory for another thread, which allocates it in the default pool. Blocks until the device has it.
    ///
    /// # Errors
    /// The lease has too little memory.
    pub(super) fn take_memory(&self, bytes: u64) -> Result<Memory, Error> {
        let of_lease = self.quota.charge(bytes)?;
        self.look_for_memory();
        of_lease.block();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.awaits_trims = true;
        // Also in a batch: the end of a trim wakes this thread only if commands are held. For the same reason, commands of
        // the batch may have missed progress.
        if !self.is_holding.swap(true, Ordering::SeqCst) {
            self.advance(state);
        }
        while !self.has_trimmed(&mut guard, PoolId::DEFAULT, bytes) && !guard.is_closed {
            self.announced.wait(&mut guard);
        }
        guard.awaits_trims = false;
        let of_pool = guard.pools.made(PoolId::DEFAULT, bytes);
        Ok(Memory { of_lease, of_pool })
    }

    /// Requests the progress that gives memory to charges of other threads, and carries out allocations that have got
    /// memory of such threads.
    fn look_for_memory(&self) {
        let mut state = self.state.lock();
        self.want_frees(&state);
        self.advance(&mut state);
    }

    fn allocate(&self, state: &mut State, at: Ticket, pool: PoolId, id: AllocId, bytes: u64) {
        state.graphs.has_happened(Awaited::Allocation(id));
        let of_lease = match state.objects.make(id) {
            Ok(charge) => charge,
            Err(error) => return self.reports.skip(at, error),
        };
        let of_pool = state.pools.made(pool, bytes);
        let number = self.reports.begin(at, true, StepMemory::Nothing, state.sampler.now);
        let at_backend = Ticket { number, ..at };
        let control = match pool {
            PoolId::DEFAULT => Control::Allocate { id, bytes, at: at_backend },
            pool => Control::AllocateIn { pool, id, bytes, at: at_backend },
        };
        // SAFETY: gives nothing up.
        match unsafe { self.backend.control(control) } {
            Ok(()) => {
                state.objects.made(id, Memory { of_lease, of_pool });
                self.reports.telemetry.changed(&self.reports.outbox);
            }
            Err(error) => {
                let error = self.reports.cause(error);
                state.objects.refuse(id, &error);
                self.reports.refuse(at, error);
            }
        }
    }

    fn free(&self, state: &mut State, stream: StreamId, after: &[Ticket], id: AllocId) {
        let pool = state.pools.of(id);
        let freed = state.objects.remove(id);
        state.pools.freed(id);
        if let Some(Memory { of_lease, of_pool }) = freed {
            let after = self.translate(after);
            self.control(Control::Free { id, stream, after: after.clone() });
            self.reports.free(Freed { home: stream, pool, after, of_lease, of_pool });
            self.reports.telemetry.changed(&self.reports.outbox);
        }
        self.end_pools(state);
    }

    /// Drops the dropped pools whose frees are complete.
    fn end_pools(&self, state: &mut State) {
        for id in state.pools.ended() {
            // The driver may destroy it late.
            self.trim(state, id);
            self.control(Control::DropPool { id });
        }
    }

    /// Returns the free memory of a pool to the system. Allocations wait for it.
    fn trim(&self, state: &mut State, pool: PoolId) {
        let trim = Arc::<Ready>::default();
        self.await_ready(Request::TrimPool { pool, keep: 0 }, &trim);
        state.pools.trims(trim);
    }
}

/// Takes controls, and the code that arrives for modules.
impl Engine {
    /// Takes a control of the client.
    ///
    /// # Errors
    /// The client broke the protocol.
    fn take_control(&self, state: &mut State, control: Control) -> Result<(), SessionError> {
        match control {
            Control::Want { ticket } => self.want(state, ticket),
            Control::Allocate { id, bytes, at } => {
                self.announce(state, PoolId::DEFAULT, id, bytes, at)?;
            }
            Control::AllocateIn { pool, id, bytes, at } => {
                self.announce(state, pool, id, bytes, at)?;
            }
            Control::Free { id, stream, after } => {
                state.stream(stream)?;
                state.check(&after, stream)?;
                if state.objects.is_variable(id) {
                    return Err(violation(format!(
                        "allocation {} is a variable of a module; unload the module instead of freeing it",
                        id.0
                    )));
                }
                // Later allocations count the memory as free. They wait for the free if they have to.
                state.objects.free(id);
                self.put(state, stream, after, Task::Free { id })?;
            }
            Control::Cancel { stream, first, last, downloads } => {
                self.cancel(state, stream, (first, last), downloads)?;
            }
            Control::CreateStream { id, priority } => self.create_stream(state, id, priority)?,
            Control::RetireStream { id } => {
                state.stream(id)?.is_retired = true;
                self.put(state, id, Vec::new(), Task::Retire)?;
            }
            Control::CreatePool { id, spec } => {
                self.end_pools(state);
                state.pools.create(id)?;
                let keep = spec.release_threshold.min(self.quota.limit_and_used().0);
                self.control(Control::CreatePool { id, spec: PoolSpec::new(keep) });
            }
            Control::ChangePool { id, .. } => {
                state.pools.find(id)?;
                self.control(control);
            }
            Control::DropPool { id } => {
                state.pools.drop(id)?;
                self.end_pools(state);
            }
            Control::NameVariable { id, module, .. } => {
                state.objects.name(module, id)?;
                // SAFETY: gives nothing up.
                if let Err(error) = unsafe { self.backend.control(control) } {
                    state.objects.spread_over(id, &error);
                }
            }
            Control::UnloadModule { id } => {
                let is_awaited = !state.modules.can_launch(id);
                state.objects.unload(id);
                if state.modules.remove(id) {
                    self.control(Control::UnloadModule { id });
                }
                // Requests and launches that wait for the module get their errors.
                if is_awaited {
                    self.answer_loaded(state, id);
                    self.advance(state);
                }
            }
            Control::DropGraph { id } => self.drop_graph(state, id),
            // The wire protocol has no others.
            _ => return Err(violation("a lease does not have this control")),
        }
        Ok(())
    }

    /// Takes a cancellation. It is a hint: the client may have retired the stream meanwhile. It is carried out in the
    /// order of the stream, because it may concern commands that are held.
    fn cancel(
        &self,
        state: &mut State,
        id: StreamId,
        (first, last): (u64, u64),
        downloads: bool,
    ) -> Result<(), SessionError> {
        let has_room = state.held < HELD_CANCELS;
        let Some(stream) = state.stream(id).ok().filter(|stream| last <= stream.last) else {
            return Ok(());
        };
        match stream.held.back_mut().map(|item| &mut item.task) {
            None => {}
            Some(Task::Cancel { last: before, downloads: same, .. })
                if *same == downloads && before.checked_add(1) == Some(first) =>
            {
                *before = last;
                return Ok(());
            }
            // The work runs.
            Some(_) if !has_room => return Ok(()),
            Some(_) => {}
        }
        self.put(state, id, Vec::new(), Task::Cancel { first, last, downloads })
    }

    /// Takes an allocation, which may have to wait.
    fn announce(
        &self,
        state: &mut State,
        pool: PoolId,
        id: AllocId,
        bytes: u64,
        at: Ticket,
    ) -> Result<(), SessionError> {
        state.expect(at)?;
        state.objects.announce(id, self.quota.charge(bytes))?;
        state.pools.announce(pool, id)?;
        let task = Task::Allocate { number: at.number, pool, id, bytes };
        self.put(state, at.stream, Vec::new(), task)
    }

    fn create_stream(
        &self,
        state: &mut State,
        id: StreamId,
        priority: i32,
    ) -> Result<(), SessionError> {
        // A retired stream is removed only after its work. `RETIRED_LIMIT` bounds those.
        let live = state.streams.values().filter(|stream| !stream.is_retired).count();
        if live as u64 >= u64::from(self.limits.streams) {
            return Err(violation(format!("more than {} streams exist", self.limits.streams)));
        }
        // A removed stream has completed its submissions, so a later stream cannot have its id.
        if let Some(newest) = state.newest_stream
            && id <= newest
        {
            return Err(violation(format!(
                "stream {} is not larger than the newest stream, {}; ids of streams must rise",
                id.0, newest.0
            )));
        }
        if self.reports.streams() >= self.limits.streams as usize + RETIRED_LIMIT {
            return Err(violation(format!(
                "at least {RETIRED_LIMIT} retired streams still have work in flight, which is the limit; wait for it \
                 before creating a stream"
            )));
        }
        state.newest_stream = Some(id);
        state.streams.insert(id, Stream::default());
        self.reports.create(id);
        self.control(Control::CreateStream { id, priority });
        Ok(())
    }

    fn load_module(
        &self,
        state: &mut State,
        id: ModuleId,
        kind: ImageKind,
        hash: Hash,
        bytes: u64,
    ) -> Result<(), SessionError> {
        let limit = self.limits.module_bytes;
        if bytes > limit {
            let message = format!("module {} has {bytes} bytes; the limit is {limit}", id.0);
            return Err(violation(message));
        }
        state.modules.announce(id, hash, kind)?;
        if state.modules.len() > OBJECT_LIMIT {
            return Err(violation(format!("more than {OBJECT_LIMIT} modules exist")));
        }
        self.need_code(hash);
        Ok(())
    }

    /// Asks the supervisor for the code of a module.
    fn need_code(&self, hash: Hash) {
        self.reports.outbox.push_unnumbered(NeedCode::OPCODE, |out| NeedCode { hash }.encode(out));
    }

    /// Another supervisor serves the session. It knows nothing of what the earlier one was asked for.
    pub(super) fn rejoined(&self) {
        let mut state = self.state.lock();
        state.modules.forget_partial();
        state.modules.waiting().for_each(|hash| self.need_code(hash));
        if state.turn == Turn::Wanted {
            self.want_turn(&mut state);
        }
    }

    /// Takes a part of a module's code.
    pub(super) fn blob(&self, hash: Hash, total: u64, part: &[u8]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let (loads, refused) = state.modules.arrived(hash, total, part, &self.code);
        for Load { id, image, ready } in loads {
            self.control(Control::LoadModule { id, image });
            self.await_ready(Request::Loaded { module: id }, &ready);
            self.answer_loaded(state, id);
        }
        refused.into_iter().for_each(|id| self.answer_loaded(state, id));
        self.advance(state);
    }
}

/// Answers requests, and requests the progress that the client waits for.
impl Engine {
    fn want(&self, state: &mut State, ticket: Ticket) {
        match self.reports.stage(ticket) {
            Stage::Complete | Stage::Submitted(0) => self.reports.report(ticket.stream),
            Stage::Submitted(number) => {
                self.want_number(state, Ticket { number, ..ticket });
            }
            Stage::Held => {
                if let Some(stream) = state.streams.get_mut(&ticket.stream) {
                    stream.wanted = stream.wanted.max(ticket.number.min(stream.last));
                }
            }
        }
    }

    /// A submission that was held is submitted now.
    fn want_held(&self, state: &mut State, ticket: Ticket) {
        let wanted = state.streams.get(&ticket.stream).map_or(0, |stream| stream.wanted);
        if ticket.number <= wanted
            && let Stage::Submitted(number) = self.reports.stage(ticket)
        {
            self.want_number(state, Ticket { number, ..ticket });
        }
    }

    /// Requests the progress of everything that a stream has taken.
    fn want_all(&self, state: &mut State, stream: StreamId) {
        let (backlog, number) = self.reports.backlog(stream);
        if backlog > 0 {
            self.want_number(state, Ticket { stream, number });
        }
    }

    /// Requests the progress up to a number of the backend, and times that submission if its completion shows in time.
    fn want_number(&self, state: &mut State, ticket: Ticket) {
        let now = state.sampler.now;
        if !self.reports.time(ticket, now, false)
            && state.streams.contains_key(&ticket.stream)
            && state.sampler.may_peek()
        {
            // SAFETY: the stream exists, and is retired only under the lock of the state, which is held.
            let complete = unsafe { self.backend.peek(ticket.stream) };
            let is_running = complete.is_ok_and(|complete| complete < ticket.number);
            self.reports.time(ticket, now, is_running);
        }
        self.control(Control::Want { ticket });
    }

    /// Answers a request, or holds it.
    ///
    /// # Errors
    /// Too many requests wait, or a pool does not exist.
    fn request(&self, state: &mut State, id: u64, request: Request) -> Result<(), SessionError> {
        let waiting = state.modules.waiting_queries()
            + state.graphs.waiting_queries()
            + state.waiting_resets.len()
            + self.asked.load(Ordering::Relaxed);
        if waiting >= QUERY_LIMIT {
            return Err(violation(format!(
                "more than {QUERY_LIMIT} queries wait; wait for replies before sending more"
            )));
        }
        match request {
            Request::Memory => {
                let (total, used) = self.quota.limit_and_used();
                let info = MemoryInfo { used, free: total - used.min(total), total };
                self.reports.outbox.push(&Event::Reply { id, reply: Ok(Reply::Memory(info)) });
            }
            Request::PoolMemory { pool } | Request::TrimPool { pool, .. } => {
                state.pools.find(pool)?;
                let asked = state.pools.asked.clone();
                if asked.fetch_add(1, Ordering::Relaxed) >= POOL_QUERY_LIMIT {
                    return Err(violation(format!(
                        "more than {POOL_QUERY_LIMIT} queries about memory pools wait; wait for replies first"
                    )));
                }
                let answer = self.answer(id);
                let answer = Answer::new(move |reply| {
                    asked.fetch_sub(1, Ordering::Relaxed);
                    answer.give(reply);
                });
                self.backend.request(request, answer);
            }
            Request::Loaded { module } => {
                state.modules.ask(module, id);
                self.answer_loaded(state, module);
            }
            Request::GraphReady { graph } => {
                state.graphs.ask(graph, id);
                self.answer_graph_queries(state, graph);
            }
            Request::Reset => {
                state.resets += 1;
                state.waiting_resets.push_back(id);
                self.advance(state);
            }
            // The backend refuses the occupancy of a module that it does not have, or not yet.
            request => self.backend.request(request, self.answer(id)),
        }
        Ok(())
    }

    fn answer_loaded(&self, state: &mut State, module: ModuleId) {
        for id in state.modules.answerable(module) {
            match state.modules.refusal(module) {
                Some(error) => self.answer(id).give(Err(error)),
                None => self.backend.request(Request::Loaded { module }, self.answer(id)),
            }
        }
    }

    /// Requests the next reset if every command before it was submitted. Returns whether it did.
    fn reset_if_due(&self, state: &mut State) -> bool {
        let done = state.resets - state.waiting_resets.len() as u64;
        let is_behind = |stream: &Stream| stream.held.front().is_none_or(|item| item.resets > done);
        if state.waiting_resets.is_empty() || !state.streams.values().all(is_behind) {
            return false;
        }
        if let Some(id) = state.waiting_resets.pop_front() {
            self.reports.reset();
            self.backend.request(Request::Reset, self.answer(id));
        }
        true
    }

    fn answer(&self, id: u64) -> Answer {
        let (reports, asked) = (self.reports.clone(), self.asked.clone());
        asked.fetch_add(1, Ordering::Relaxed);
        Answer::new(move |reply| {
            asked.fetch_sub(1, Ordering::Relaxed);
            let unknown = || Error::unsupported(Feature::Reply, "the node");
            let reply = reply
                .and_then(|reply| if reply.tag().is_some() { Ok(reply) } else { Err(unknown()) });
            reports.outbox.push(&Event::Reply { id, reply });
        })
    }

    /// Returns the submissions that are not known to be complete, with the host memory that is held for them. Requests
    /// the progress of the backend, so that a later call knows more.
    pub(super) fn report_backlog(&self) -> Backlog {
        let state = self.state.lock();
        let mut backlog = self.reports.whole_backlog();
        let held = state.streams.values().flat_map(|stream| &stream.held);
        backlog.submissions += held.filter(|item| item.number().is_some()).count() as u64;
        backlog.host_bytes += state.held_bytes as u64;
        for stream in self.reports.busy_streams() {
            let (_, number) = self.reports.backlog(stream);
            self.control(Control::Want { ticket: Ticket { stream, number } });
        }
        backlog
    }

    /// Requests a report when all work is complete, or has stalled.
    pub(super) fn drain(&self, request: u64) {
        let mut state = self.state.lock();
        state.drain = Some(request);
        self.settle(&mut state);
    }

    /// The supervisor gives the session the turn for the device, or requests it back.
    pub(super) fn turn(&self, has_turn: bool) {
        let mut state = self.state.lock();
        state.takes_turns = true;
        if !has_turn {
            // The turn that ends may have begun in this batch.
            self.flush_early(&mut state);
        }
        match state.turn {
            _ if has_turn => self.set_turn(&mut state, Turn::GoesOn),
            Turn::Has | Turn::GoesOn => self.set_turn(&mut state, Turn::GivesBack),
            Turn::GivesBack | Turn::Stalled | Turn::Wanted => {}
        }
    }

    fn set_turn(&self, state: &mut State, turn: Turn) {
        state.turn = turn;
        self.advance(state);
    }

    /// Held commands that have stalled may be able to run.
    fn want_turn(&self, state: &mut State) {
        state.turn = Turn::Wanted;
        self.reports.outbox.push_unnumbered(WantTurn::OPCODE, |out| WantTurn {}.encode(out));
    }

    /// Sends the report that all work is complete or has stalled, or requests the progress that shows it.
    fn report_drained(&self, state: &mut State) {
        let Some(request) = state.drain else { return };
        // Once for each: there may be a thousand streams, and each reports its progress here.
        let (is_busy, last) = self.reports.last_submissions();
        last.into_iter().for_each(|ticket| self.want_number(state, ticket));
        if is_busy || state.held > 0 && state.turn == Turn::Has {
            return;
        }
        state.drain = None;
        let drained = Drained { request };
        self.reports.outbox.push_unnumbered(Drained::OPCODE, |out| drained.encode(out));
        match state.turn {
            Turn::GivesBack if state.held > 0 => self.want_turn(state),
            Turn::GoesOn if state.held > 0 => state.turn = Turn::Stalled,
            _ => {}
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
