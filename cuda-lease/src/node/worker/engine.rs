//! The engine: takes commands in their order, holds those that cannot run yet, and submits the others to the backend.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use cuda_core::{
    Access, Backend, Error, MemoryInfo, Ticket,
    order::{Poison, uses_of},
    protocol::{
        AllocId, Answer, Control, HostBlock, HostRegion, Region, Reply, Request, Status, StreamId,
        Submission, Work,
    },
};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use super::{
    held::{Download, Item, Task, Upload},
    modules::Modules,
    numbers::Stage,
    reports::{Keep, Landing, Reports, SMALL},
    staging::{PIECE, Staged, Staging},
};
use crate::{
    session::SessionError,
    wire::{BlobId, Command, Event, Hash, Limits, Query, QueryReply, Step},
};

/// The maximum number of commands that a session may have waiting.
const HELD_LIMIT: usize = 64 << 10;

/// The maximum number of allocations and of modules that a session may have.
const OBJECT_LIMIT: usize = 1 << 20;

/// The bytes of staging memory for uploads, and as many for downloads.
const STAGING: usize = 64 << 20;

pub(super) struct Engine {
    backend: Arc<dyn Backend>,
    reports: Arc<Reports>,
    limits: Limits,
    /// The most submissions of a stream that the backend has at a time.
    backlog: u64,
    uploads: Arc<Staging>,
    downloads: Arc<Staging>,
    state: Mutex<State>,
    /// An upload was announced, or the session ended.
    announced: Condvar,
    /// Whether commands are held. Readable without the lock.
    is_holding: AtomicBool,
}

#[derive(Default)]
struct State {
    streams: FxHashMap<StreamId, Stream>,
    modules: Modules,
    /// The streams of uploads whose bytes have not all arrived.
    uploads: FxHashMap<BlobId, StreamId>,
    allocations: FxHashMap<AllocId, u64>,
    used: u64,
    /// The write sets of submissions that were refused.
    poison: Poison,
    held: usize,
    /// Resets that were requested, and the queries of those that wait for earlier commands.
    resets: u64,
    waiting_resets: VecDeque<u64>,
    is_closed: bool,
}

#[derive(Default)]
struct Stream {
    /// The number of the last submission that arrived.
    last: u64,
    held: VecDeque<Item>,
    /// The largest number that the client waits for and that is held.
    wanted: u64,
    /// The last number of the backend whose progress was requested for credit.
    requested: u64,
}

/// Whether an item at the head of its stream was carried out.
#[derive(PartialEq, Eq)]
enum Outcome {
    Done,
    Waits,
}

fn violation(message: impl Into<String>) -> SessionError {
    SessionError::Command(message.into())
}

impl Engine {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        reports: Arc<Reports>,
        limits: Limits,
    ) -> Arc<Self> {
        let engine = Arc::new(Self {
            backlog: backend.capabilities().submissions_in_flight.max(1),
            uploads: Staging::new(backend.clone(), STAGING),
            downloads: Staging::new(backend.clone(), STAGING),
            backend,
            reports: reports.clone(),
            limits,
            state: Mutex::default(),
            announced: Condvar::new(),
            is_holding: AtomicBool::new(false),
        });
        reports.attach(Arc::downgrade(&engine));
        engine
    }

    /// Takes the next command of the client.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub(super) fn command(&self, command: Command<'_>) -> Result<(), SessionError> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        match command {
            Command::Submit { ticket, after, step } => {
                state.expect(ticket)?;
                state.check(&after, ticket.stream)?;
                self.submit(state, ticket, after, step)?;
            }
            Command::Sync { ticket } => self.want(state, ticket),
            Command::Allocate { id, bytes, at } => {
                state.expect(at)?;
                if state.allocations.insert(id, 0).is_some() {
                    return Err(violation(format!("allocation {} is made twice", id.0)));
                }
                if state.allocations.len() > OBJECT_LIMIT {
                    return Err(violation(format!("more than {OBJECT_LIMIT} allocations exist")));
                }
                let task = Task::Allocate { number: at.number, id, bytes };
                self.put(state, at.stream, Vec::new(), task)?;
            }
            Command::Free { id, stream, after } => {
                state.stream(stream)?;
                state.check(&after, stream)?;
                self.put(state, stream, after, Task::Free { id })?;
            }
            Command::CreateStream { id, priority } => self.create_stream(state, id, priority)?,
            Command::RetireStream { id } => {
                state.stream(id)?;
                self.put(state, id, Vec::new(), Task::Retire)?;
            }
            Command::LoadModule { id, kind, hash, bytes } => {
                if bytes > self.limits.module_bytes {
                    return Err(violation(format!(
                        "module {} has {bytes} bytes; the limit is {}",
                        id.0, self.limits.module_bytes
                    )));
                }
                state.modules.announce(id, hash, kind)?;
            }
            Command::UnloadModule { id } => {
                if state.modules.remove(id) {
                    self.control(Control::UnloadModule { id });
                }
            }
            Command::NameVariable { id, module, name, bytes } => {
                let control = Control::NameVariable { id, module, name, bytes };
                // SAFETY: gives nothing up.
                if let Err(error) = unsafe { self.backend.control(control) } {
                    state.poison.spread_over(id, &error);
                }
            }
            Command::Query { id, query } => self.query(state, id, query),
        }
        self.settle(state);
        Ok(())
    }

    /// Takes a part of a module's code.
    pub(super) fn blob(&self, hash: Hash, total: u64, part: &[u8]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let controls = state.modules.arrived(hash, total, part);
        if !controls.is_empty() {
            controls.into_iter().for_each(|control| self.control(control));
            self.answer_loaded(state);
            self.advance(state);
        }
    }

    /// The staging memory of uploads.
    pub(super) fn staging(&self) -> &Arc<Staging> {
        &self.uploads
    }

    /// Waits until the command of an upload has arrived. Returns the bytes of the upload that are still to come, or `None`
    /// at the end of the session.
    pub(super) fn expected(&self, blob: BlobId) -> Option<u64> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(upload) = state.upload(blob) {
                return Some(upload.bytes - upload.arrived);
            }
            self.announced.wait(&mut state);
        }
    }

    /// Takes the next `bytes` bytes of an upload that is [`expected`](Self::expected).
    pub(super) fn piece(&self, blob: BlobId, piece: Staged, bytes: usize) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(upload) = state.upload(blob) else { return };
        upload.arrived += bytes as u64;
        let is_complete = upload.arrived >= upload.bytes;
        if !upload.is_refused {
            upload.pieces.push_back((piece, bytes));
        }
        if is_complete {
            state.uploads.remove(&blob);
        }
        self.advance(state);
    }

    /// Ends all waits: no more commands come.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.announced.notify_all();
        self.uploads.close();
    }

    /// Carries out held commands that can run now.
    pub(super) fn pump(&self) {
        if self.is_holding.load(Ordering::Acquire) {
            self.advance(&mut self.state.lock());
        }
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
            Step::WriteBulk { to, blob, bytes } => {
                if state.uploads.insert(blob, ticket.stream).is_some() {
                    return Err(violation(format!("blob {} is used twice", blob.0)));
                }
                self.announced.notify_all();
                Task::Upload(Upload::new(number, to, blob, bytes))
            }
            Step::Write { to, bytes } => {
                return self.write(state, ticket, after, to, bytes);
            }
            Step::Read { from, blob, bytes } => {
                Task::Download(Download { number, from, blob, bytes, submitted: 0 })
            }
            other => {
                let work = plain(other)?;
                // The usual case, without a copy of the work.
                if self.can_run(state, ticket.stream, &after)
                    && is_there(state, &work)
                    && self.has_credit(state, ticket.stream)
                {
                    self.run(state, ticket, &after, &work, &[], true, Keep::Nothing);
                    return Ok(());
                }
                Task::Work { number, work: work.into_owned() }
            }
        };
        self.put(state, ticket.stream, after, task)
    }

    /// Writes bytes that arrived with their command.
    fn write(
        &self,
        state: &mut State,
        ticket: Ticket,
        after: Vec<Ticket>,
        to: Region,
        bytes: &[u8],
    ) -> Result<(), SessionError> {
        let (number, length) = (ticket.number, bytes.len() as u64);
        let mut upload = Upload::new(number, to, BlobId(0), length);
        upload.arrived = length;
        match self.uploads.copy(bytes) {
            Ok(piece) => upload.pieces.push_back((piece, bytes.len())),
            Err(error) => upload.error = Some(error),
        }
        self.put(state, ticket.stream, after, Task::Upload(upload))
    }

    /// Carries a command out, or holds it.
    fn put(
        &self,
        state: &mut State,
        stream: StreamId,
        after: Vec<Ticket>,
        task: Task,
    ) -> Result<(), SessionError> {
        let mut item = Item { resets: state.resets, after, task };
        let first = state.streams.get(&stream).is_none_or(|it| it.held.is_empty());
        if first && self.try_run(state, stream, &mut item) == Outcome::Done {
            return Ok(());
        }
        if state.held == HELD_LIMIT {
            return Err(violation(format!("more than {HELD_LIMIT} commands wait")));
        }
        state.held += 1;
        if let Some(stream) = state.streams.get_mut(&stream) {
            stream.held.push_back(item);
        }
        Ok(())
    }

    /// Carries out held commands until none can run.
    fn advance(&self, state: &mut State) {
        loop {
            let mut progressed = false;
            let holding: Vec<_> = state
                .streams
                .iter()
                .filter(|(_, it)| !it.held.is_empty())
                .map(|(id, _)| *id)
                .collect();
            for id in holding {
                while let Some(mut item) =
                    state.streams.get_mut(&id).and_then(|it| it.held.pop_front())
                {
                    if self.try_run(state, id, &mut item) == Outcome::Waits {
                        if let Some(stream) = state.streams.get_mut(&id) {
                            stream.held.push_front(item);
                        }
                        break;
                    }
                    state.held -= 1;
                    progressed = true;
                }
            }
            progressed |= self.reset_if_due(state);
            if !progressed {
                break;
            }
        }
        self.settle(state);
    }

    fn settle(&self, state: &mut State) {
        let is_holding = state.held > 0 || !state.waiting_resets.is_empty();
        self.is_holding.store(is_holding, Ordering::Release);
    }

    /// Whether a command at the head of `stream` finds its predecessors submitted.
    fn can_run(&self, state: &State, stream: StreamId, after: &[Ticket]) -> bool {
        let submitted = |it: &Ticket| self.reports.stage(*it) != Stage::Held;
        state.waiting_resets.is_empty()
            && state.streams.get(&stream).is_some_and(|it| it.held.is_empty())
            && after.iter().all(submitted)
    }

    /// Whether the backend takes another submission of a stream. If not, its progress is requested.
    fn has_credit(&self, state: &mut State, stream: StreamId) -> bool {
        let (backlog, taken) = self.reports.backlog(stream);
        if backlog < self.backlog {
            return true;
        }
        let number = taken - backlog / 2;
        if let Some(it) = state.streams.get_mut(&stream)
            && it.requested + backlog <= taken
        {
            it.requested = number;
            self.control(Control::Want { ticket: Ticket { stream, number } });
        }
        false
    }

    /// Tries to carry out the first command of a stream.
    fn try_run(&self, state: &mut State, stream: StreamId, item: &mut Item) -> Outcome {
        let submitted = |it: &Ticket| self.reports.stage(*it) != Stage::Held;
        let resets_left = state.waiting_resets.len() as u64;
        if item.resets > state.resets - resets_left
            || !item.after.iter().all(submitted)
            || !self.has_credit(state, stream)
        {
            return Outcome::Waits;
        }
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
                if !is_there(state, work) {
                    return Outcome::Waits;
                }
                let ticket = Ticket { stream, number: *number };
                self.run(state, ticket, after, work, &[], true, Keep::Nothing);
                Outcome::Done
            }
            Task::Upload(upload) => self.upload(state, stream, after, upload),
            Task::Download(download) => self.download(state, stream, after, download),
            Task::Allocate { number, id, bytes } => {
                self.allocate(state, Ticket { stream, number: *number }, *id, *bytes);
                Outcome::Done
            }
            Task::Free { id } => {
                self.free(state, stream, after, *id);
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

    /// Submits the pieces of an upload that have arrived.
    fn upload(
        &self,
        state: &mut State,
        stream: StreamId,
        after: &[Ticket],
        upload: &mut Upload,
    ) -> Outcome {
        let ticket = Ticket { stream, number: upload.number };
        if let Some(error) = upload.error.take() {
            let range = upload.to.used(upload.bytes, Access::Write);
            state.poison.spread(&[range], &error);
            self.reports.skip(ticket, error);
            return Outcome::Done;
        }
        while let Some((piece, bytes)) = upload.pieces.pop_front() {
            let length = bytes as u64;
            let from = HostRegion { block: piece.block().id(), offset: 0 };
            let to = at(upload.to, upload.submitted);
            upload.submitted += length;
            let is_last = upload.submitted >= upload.bytes;
            let work = Work::Upload { from, to, bytes: length };
            let host = [piece.block().clone()];
            // The order of the stream covers all pieces behind the first.
            let after = if upload.submitted == length { after } else { &[] };
            let keep = Keep::Upload(piece);
            if !self.run(state, ticket, after, &work, &host, is_last, keep) {
                upload.is_refused = true;
                upload.pieces.clear();
            }
        }
        if upload.is_refused {
            // The rest of the bytes is discarded as it arrives.
            return if upload.arrived >= upload.bytes { Outcome::Done } else { Outcome::Waits };
        }
        if upload.bytes == 0 {
            let work = Work::Join;
            self.run(state, ticket, after, &work, &[], true, Keep::Nothing);
            return Outcome::Done;
        }
        // Its staging memory comes back when the copies are complete.
        self.want_all(stream);
        if upload.submitted >= upload.bytes { Outcome::Done } else { Outcome::Waits }
    }

    /// Submits a download, as far as there is staging memory.
    fn download(
        &self,
        state: &mut State,
        stream: StreamId,
        after: &[Ticket],
        download: &mut Download,
    ) -> Outcome {
        let ticket = Ticket { stream, number: download.number };
        while download.submitted < download.bytes || download.bytes == 0 {
            let bytes = (download.bytes - download.submitted).min(PIECE as u64);
            let block = match self.downloads.try_take(bytes as usize) {
                None => {
                    self.want_all(stream);
                    return Outcome::Waits;
                }
                Some(Ok(block)) => block,
                Some(Err(error)) => {
                    self.reports.skip(ticket, error);
                    return Outcome::Done;
                }
            };
            let from = at(download.from, download.submitted);
            let to = HostRegion { block: block.block().id(), offset: 0 };
            let host = [block.block().clone()];
            let landing = Landing {
                blob: download.blob,
                offset: download.submitted,
                bytes: bytes as usize,
                block,
                is_small: download.bytes <= SMALL,
            };
            let after = if download.submitted == 0 { after } else { &[] };
            download.submitted += bytes;
            let is_last = download.submitted >= download.bytes;
            let work = Work::Download { from, to, bytes };
            let keep = Keep::Download(landing);
            if !self.run(state, ticket, after, &work, &host, is_last, keep) || is_last {
                break;
            }
        }
        // Its bytes travel as soon as they are there.
        self.want_all(stream);
        Outcome::Done
    }

    /// Requests the progress of everything that a stream has taken.
    fn want_all(&self, stream: StreamId) {
        let (backlog, number) = self.reports.backlog(stream);
        if backlog > 0 {
            self.control(Control::Want { ticket: Ticket { stream, number } });
        }
    }

    /// Submits one step, or a part of it. Returns whether the backend took it.
    #[allow(clippy::too_many_arguments)]
    fn run(
        &self,
        state: &State,
        ticket: Ticket,
        after: &[Ticket],
        work: &Work<'_>,
        host: &[Arc<HostBlock>],
        is_last: bool,
        keep: Keep,
    ) -> bool {
        let (uses, overwrites) = (uses_of(work), work.overwrites());
        let refused = match state.poison.check(&uses, overwrites) {
            Some(error) => {
                drop(keep);
                self.reports.skip(ticket, error.clone());
                error
            }
            None => {
                let number = self.reports.begin(ticket, is_last, keep);
                let after = self.translate(after);
                let ticket_of_backend = Ticket { number, ..ticket };
                let submission = Submission { ticket: ticket_of_backend, after: &after, work };
                // SAFETY: the blocks in `host` are staging memory of this submission alone. `reports` keeps them until
                // the backend has reported it complete. The rules about device memory concern only the memory of this
                // lease (see the rules of the module). Streams and modules are retired under the lock that is held.
                match unsafe { self.backend.submit(&submission, host) } {
                    Ok(()) => return true,
                    Err(error) => {
                        let error = self.reports.cause(error);
                        self.reports.refuse(ticket, error.clone());
                        error
                    }
                }
            }
        };
        state.poison.spread(&uses, &refused);
        false
    }

    /// The tickets of the backend for tickets of the client.
    fn translate(&self, after: &[Ticket]) -> Vec<Ticket> {
        let ticket = |it: &Ticket| match self.reports.stage(*it) {
            Stage::Submitted(number) if number > 0 => Some(Ticket { number, ..*it }),
            _ => None,
        };
        after.iter().filter_map(ticket).collect()
    }

    fn allocate(&self, state: &mut State, at: Ticket, id: AllocId, bytes: u64) {
        let free = self.limits.memory.saturating_sub(state.used);
        if bytes > free {
            let error = over_quota(&self.backend, bytes, free, self.limits.memory);
            state.poison.spread_over(id, &error);
            return self.reports.skip(at, error);
        }
        let number = self.reports.begin(at, true, Keep::Nothing);
        let control = Control::Allocate { id, bytes, at: Ticket { number, ..at } };
        // SAFETY: gives nothing up.
        match unsafe { self.backend.control(control) } {
            Ok(()) => {
                state.used += bytes;
                state.allocations.insert(id, bytes);
            }
            Err(error) => {
                let error = self.reports.cause(error);
                state.poison.spread_over(id, &error);
                self.reports.refuse(at, error);
            }
        }
    }

    fn free(&self, state: &mut State, stream: StreamId, after: &[Ticket], id: AllocId) {
        state.poison.forget(id);
        if let Some(bytes) = state.allocations.remove(&id) {
            state.used -= bytes;
        }
        let after = self.translate(after);
        self.control(Control::Free { id, stream, after });
    }

    fn create_stream(
        &self,
        state: &mut State,
        id: StreamId,
        priority: i32,
    ) -> Result<(), SessionError> {
        if state.streams.len() as u64 >= u64::from(self.limits.streams) {
            return Err(violation(format!("more than {} streams exist", self.limits.streams)));
        }
        if state.streams.insert(id, Stream::default()).is_some() {
            return Err(violation(format!("stream {} is created twice", id.0)));
        }
        self.reports.create(id);
        self.control(Control::CreateStream { id, priority });
        Ok(())
    }

    /// Passes a control on. One that fails shows in the submissions that need it.
    fn control(&self, control: Control) {
        // SAFETY: commands are carried out in the client's order, and the rules of the module apply to what it frees.
        _ = unsafe { self.backend.control(control) };
    }

    fn want(&self, state: &mut State, ticket: Ticket) {
        match self.reports.stage(ticket) {
            Stage::Complete | Stage::Submitted(0) => self.reports.report(ticket.stream),
            Stage::Submitted(number) => {
                self.control(Control::Want { ticket: Ticket { number, ..ticket } });
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
        let wanted = state.streams.get(&ticket.stream).map_or(0, |it| it.wanted);
        if ticket.number <= wanted
            && let Stage::Submitted(number) = self.reports.stage(ticket)
        {
            self.control(Control::Want { ticket: Ticket { number, ..ticket } });
        }
    }

    fn query(&self, state: &mut State, id: u64, query: Query) {
        match query {
            Query::Memory => {
                let (used, total) = (state.used, self.limits.memory);
                let info = MemoryInfo { used, free: total - used.min(total), total };
                self.reports.outbox.push(&Event::Reply { id, reply: Ok(QueryReply::Memory(info)) });
            }
            Query::Loaded(module) => {
                state.modules.ask(module, id);
                self.answer_loaded(state);
            }
            Query::Reset => {
                state.resets += 1;
                state.waiting_resets.push_back(id);
                self.advance(state);
            }
        }
    }

    fn answer_loaded(&self, state: &mut State) {
        for (module, id) in state.modules.answerable() {
            self.backend.request(Request::Loaded { module }, self.answer(id));
        }
    }

    /// Requests the next reset if every command before it was submitted. Returns whether it did.
    fn reset_if_due(&self, state: &mut State) -> bool {
        let done = state.resets - state.waiting_resets.len() as u64;
        let is_behind = |it: &Stream| it.held.front().is_none_or(|item| item.resets > done);
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
        let reports = self.reports.clone();
        Answer::new(move |reply| {
            let reply = reply.map(|reply| match reply {
                Reply::Loaded { max_threads, log, entries } => {
                    QueryReply::Loaded { max_threads, log, entries }
                }
                Reply::Memory(info) => QueryReply::Memory(info),
                Reply::Reset { lost } => QueryReply::Reset { lost },
                _ => QueryReply::Reset { lost: None },
            });
            reports.outbox.push(&Event::Reply { id, reply });
        })
    }
}

impl State {
    /// The upload whose bytes are arriving.
    fn upload(&mut self, blob: BlobId) -> Option<&mut Upload> {
        let stream = self.streams.get_mut(self.uploads.get(&blob)?)?;
        stream.held.iter_mut().find_map(|item| match &mut item.task {
            Task::Upload(upload) if upload.blob == blob => Some(upload),
            _ => None,
        })
    }

    fn stream(&mut self, id: StreamId) -> Result<&mut Stream, SessionError> {
        self.streams
            .get_mut(&id)
            .ok_or_else(|| violation(format!("stream {} does not exist", id.0)))
    }

    /// Checks and counts the next number of a stream.
    fn expect(&mut self, ticket: Ticket) -> Result<(), SessionError> {
        let stream = self.stream(ticket.stream)?;
        if ticket.number != stream.last + 1 {
            let (got, expected) = (ticket.number, stream.last + 1);
            return Err(violation(format!(
                "submission {got} of stream {} is out of order; the next one is {expected}",
                ticket.stream.0
            )));
        }
        stream.last = ticket.number;
        Ok(())
    }

    /// Checks that tickets name submissions that have arrived. A stream that is gone has completed its submissions.
    fn check(&self, after: &[Ticket], own: StreamId) -> Result<(), SessionError> {
        let future = after.iter().find(|it| {
            it.stream == own || self.streams.get(&it.stream).is_some_and(|at| it.number > at.last)
        });
        future.map_or(Ok(()), |it| {
            let (number, stream) = (it.number, it.stream.0);
            Err(violation(format!("submission {number} of stream {stream} has not arrived")))
        })
    }
}

fn over_quota(backend: &Arc<dyn Backend>, bytes: u64, free: u64, quota: u64) -> Error {
    let address = backend.info().address.clone();
    let detail = format!("{bytes} bytes requested, {free} of the lease's {quota} bytes are free");
    Error::Remote { address, status: Status::CapacityExceeded, detail }
}

fn at(region: Region, offset: u64) -> Region {
    Region { offset: region.offset.saturating_add(offset), ..region }
}

fn is_there(state: &State, work: &Work<'_>) -> bool {
    match work {
        Work::Launch(launch) => state.modules.is_there(launch.function.module),
        _ => true,
    }
}

/// The work of a step that has no host bytes.
fn plain(step: Step<'_>) -> Result<Work<'_>, SessionError> {
    Ok(match step {
        Step::Join => Work::Join,
        Step::Copy { from, to, bytes } => Work::Copy { from, to, bytes },
        Step::Fill { to, pattern, count } => Work::Fill { to, pattern, count },
        Step::Timestamp { to } => Work::Timestamp { to },
        Step::Launch(launch) => Work::Launch(launch),
        Step::Write { .. } | Step::WriteBulk { .. } | Step::Read { .. } => {
            return Err(violation("a copy with host bytes is no plain work"));
        }
    })
}
