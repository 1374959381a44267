//! Sessions of leases: frames between the connections of a client, which come and go, and the worker of the lease.
//!
//! A [`Session`] has two lanes ([`lane`]). It fetches the code that its worker needs ([`module_code`]), and waits for
//! its turn if the leases of the device take [`Turns`], which its client delays for a limited time ([`drain_time`]).
//! `leases` creates sessions, and `connection` attaches streams to them.

mod drain_time;
mod lane;
mod module_code;

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use cuda_core::{
    Error,
    protocol::{Notice, Status},
};
use cuda_lease::wire::{self, Ack, Event, Frame, Frames, Hash, opcode, put_frame};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{Instrument, Span};

use self::{
    drain_time::DrainTime,
    lane::{BATCH_BYTES, BATCH_BYTES_IN_TURNS, Lane, write_worker},
    module_code::{CodeStep, ModuleCode, Next},
};
use super::{
    blobs::Blobs,
    streams::{End, FrameStream, STALL, logged},
    workers::Lanes,
};
use crate::{
    metrics::{Meter, Tally},
    worker::{Drain, Drained, Measured, NeedCode, SetTurn, WantTurn, WorkerBlob},
};

/// The maximum number of bytes of a blob in one frame to the worker.
const BLOB_PART: usize = 256 << 10;

/// A session of a lease.
pub(super) struct Session {
    pub(super) epoch: u32,
    commands: Lane,
    bulk: Lane,
    code: ModuleCode,
    meter: Arc<Meter>,
    /// Set to true when the worker has exited, or is to be killed.
    ended: tokio::sync::watch::Sender<bool>,
    /// The announcement of the end of the lease.
    ending: Mutex<Option<Event>>,
    /// The reason for the end of the session: that of the supervisor, or that of the worker.
    cause: Mutex<Option<Error>>,
    /// The turns of a session-exclusive lease.
    turns: Option<Turns>,
    /// Whether the next node knows of a session that takes turns.
    is_kept: AtomicBool,
    span: Span,
}

/// The terms of a session.
pub(super) struct SessionTerms {
    /// The epoch, which the client chose.
    pub(super) epoch: u32,
    /// Returns the error of the client if the worker ends by itself.
    pub(super) died: Box<dyn FnOnce() -> Error + Send>,
    pub(super) span: Span,
}

impl Session {
    /// Starts the session of a worker that has a lease.
    pub(super) fn start(
        terms: SessionTerms,
        (commands, bulk): Lanes,
        blobs: Arc<Blobs>,
        meter: Arc<Meter>,
        turns: Option<Turns>,
    ) -> Arc<Self> {
        let SessionTerms { epoch, died, span } = terms;
        let (events, commands_out) = commands.into_split();
        let (downloads, bulk_out) = bulk.into_split();
        let bytes = if turns.is_some() { BATCH_BYTES_IN_TURNS } else { BATCH_BYTES };
        let opcodes = opcode::MEM_ALLOC..=opcode::LAST_COMMAND;
        let (commands, from_client) = Lane::new(epoch, opcodes, bytes);
        let (bulk, uploads) = Lane::new(epoch, opcode::CHUNK..=opcode::CHUNK, BATCH_BYTES);
        let session = Arc::new(Self {
            epoch,
            commands,
            bulk,
            code: ModuleCode::new(blobs),
            meter,
            ended: tokio::sync::watch::Sender::new(false),
            ending: Mutex::default(),
            cause: Mutex::default(),
            is_kept: AtomicBool::new(turns.is_none()),
            turns,
            span: span.clone(),
        });
        span.in_scope(|| tracing::info!("a session has begun"));
        if session.turns.is_some() {
            session.commands.set_running(false);
            // Before all commands: the worker then gives the device little work at a time.
            let mut first = Vec::new();
            put_turn(&mut first, false);
            session.commands.send_first(first.into());
            tokio::spawn(session.clone().take_turns());
        }
        tokio::spawn(write_worker(commands_out, from_client));
        tokio::spawn(write_worker(bulk_out, uploads));
        let own = session.clone();
        tokio::spawn(async move {
            let count = |frame: &Frame<'_>| {
                own.meter.returned(frame);
                false
            };
            own.bulk.read_worker(downloads, count).await;
        });
        let own = session.clone();
        let read = async move {
            own.commands.read_worker(events, |frame| own.take(frame)).await;
            own.worker_ended(died);
        };
        tokio::spawn(read.instrument(span));
        session
    }

    /// The worker's socket ended.
    fn worker_ended(&self, died: impl FnOnce() -> Error) {
        let known = self.cause.lock().clone();
        // `died` locks the leases, and a thread with that lock calls `end`. So the cause is not locked meanwhile.
        let cause = known.unwrap_or_else(died);
        let cause = self.cause.lock().get_or_insert(cause).clone();
        // The worker may have written any text.
        tracing::info!(cause = logged(&cause.to_string()), "a session has ended");
        self.lost(cause);
    }

    /// Tells the client that the session is lost, and the lease table, which kills the worker if it lives.
    fn lost(&self, error: Error) {
        self.ended.send_replace(true);
        self.commands.push(&Notice::Lost { error }.into());
    }

    /// The worker is gone. The client has a while for the rest of its events, also if it does not take those in front of
    /// it.
    pub(super) fn worker_gone(&self) {
        self.ended.send_replace(true);
    }

    /// Ends the session: its client gets `error` when the worker has exited.
    pub(super) fn end(&self, error: Error) {
        self.cause.lock().get_or_insert(error);
    }

    /// Takes no more commands. Work in flight goes on.
    pub(super) fn stop_admission(&self) {
        self.commands.stop_admission();
    }

    /// Gives a session-exclusive lease the turn, or takes it back.
    pub(super) fn set_turn(&self, has_turn: bool) {
        if let Some(turns) = &self.turns {
            turns.set(has_turn, |is_running| self.commands.set_running(is_running));
            self.report_waiting(turns);
        }
    }

    /// Reports that the session is busy if commands wait, perhaps again: the lane may have reported `Busy` before the `Idle`
    /// that the table has just processed, and that `Idle` removed the session from the run queue. If none wait, their
    /// connection may have ended before they passed, and the session has the turn for nothing.
    fn report_waiting(&self, turns: &Turns) {
        let goes_on = turns.go_on();
        if !goes_on && !self.commands.is_waiting() {
            turns.give_back_unused(|is_running| self.commands.set_running(is_running));
        }
        // Frames that arrive from here on are reported behind `Idle`.
        if self.commands.is_waiting() || turns.state.lock().is_wanted {
            turns.report(Turn::Busy);
        }
    }

    /// Requests turns, and asks the worker when it has completed everything.
    async fn take_turns(self: Arc<Self>) {
        let Some(turns) = &self.turns else { return };
        loop {
            tokio::select! {
                () = self.commands.waits() => self.report_waiting(turns),
                () = turns.has_messages.notified() => {
                    self.commands.send_to_worker(turns.messages().into()).await;
                }
                () = self.ended() => return,
            }
        }
    }

    /// Takes a frame of the worker. Returns whether it was for the supervisor.
    fn take(self: &Arc<Self>, frame: &Frame<'_>) -> bool {
        self.meter.returned(frame);
        match (frame.header.opcode, &self.turns) {
            (Drained::OPCODE, Some(turns)) => {
                let set_running = |is_running| self.commands.set_running(is_running);
                if let Ok(Drained { request }) = Drained::decode(frame.body)
                    && turns.drained(request, set_running)
                {
                    self.report_waiting(turns);
                }
            }
            (WantTurn::OPCODE, Some(turns)) => {
                // A hostile worker may ask again and again.
                if !std::mem::replace(&mut turns.state.lock().is_wanted, true) {
                    self.report_waiting(turns);
                }
            }
            (Measured::OPCODE, _) => {
                if let Ok(measured) = Measured::decode(frame.body) {
                    self.meter.measured(&measured.queue, &measured.device);
                    self.meter.set_memory(measured.memory);
                    self.meter.set_backlog(measured.backlog, measured.backlog_bytes);
                }
            }
            (NeedCode::OPCODE, _) => {
                if let Ok(NeedCode { hash }) = NeedCode::decode(frame.body) {
                    self.request_code(hash);
                }
            }
            (opcode, _) if frame.header.sequence == 0 && opcode != Ack::OPCODE => {
                // The worker has ended the session.
                if let Ok(Event::Notice(Notice::Lost { error })) = Event::decode(opcode, frame.body)
                {
                    self.end(error);
                }
            }
            _ => return false,
        }
        true
    }

    /// Gets code for the worker.
    fn request_code(self: &Arc<Self>, hash: Hash) {
        // A hostile worker asks until it is killed.
        if *self.ended.borrow() {
            return;
        }
        match self.code.request(hash) {
            Ok(CodeStep::Nothing) => {}
            Ok(CodeStep::Ask) => self.commands.push(&Event::NeedBlob { hash }),
            Ok(CodeStep::Send) => self.start_sending(),
            Err(error) => {
                let address = "the lease".into();
                let (status, detail) = (Status::CapacityExceeded, error.to_string());
                let error = Error::Remote { address, status, detail };
                self.end(error.clone());
                self.commands.stop_admission();
                self.lost(error);
            }
        }
    }

    /// Whether the next node knows of the session, as far as it has to.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::SeqCst)
    }

    pub(super) fn set_kept(&self) {
        self.is_kept.store(true, Ordering::SeqCst);
    }

    /// Reports that the session is idle, after the work that an earlier supervisor has passed to the worker.
    pub(super) fn settle(&self) {
        if let Some(turns) = &self.turns {
            turns.request_back(&mut turns.state.lock());
            turns.pass();
        }
    }

    /// Waits until the worker has exited, or is to be killed.
    pub(super) async fn ended(&self) {
        _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Announces that the lease ends soon.
    pub(super) fn announce(&self, ending: Event) {
        self.commands.push(&ending);
        *self.ending.lock() = Some(ending);
    }

    /// The events of the supervisor that a new connection gets.
    fn own_events(&self) -> Vec<Event> {
        let mut own: Vec<_> =
            self.code.wanted().into_iter().map(|hash| Event::NeedBlob { hash }).collect();
        own.extend(self.ending.lock().clone());
        if *self.ended.borrow() {
            own.extend(self.cause.lock().clone().map(|error| Notice::Lost { error }.into()));
        }
        own
    }

    /// Serves a lane on one connection, until that ends, or for a while after the end of the session.
    pub(super) async fn serve(
        self: &Arc<Self>,
        lane: wire::Lane,
        send: quinn::SendStream,
        receive: FrameStream,
        resume: Option<u64>,
    ) -> Result<(), End> {
        let served = async {
            let seen = |frames: &Frames, before| self.count(lane, frames, before);
            match lane {
                wire::Lane::Bulk => {
                    let time = DrainTime::default();
                    self.bulk.serve(send, receive, resume, &time, Vec::new, seen).await
                }
                wire::Lane::Commands => {
                    let none = DrainTime::default();
                    let time = self.turns.as_ref().map_or(&none, |turns| &turns.drain_time);
                    let own = || self.own_events();
                    self.commands.serve(send, receive, resume, time, own, seen).await
                }
            }
        };
        let lingered = async {
            self.ended().await;
            tokio::time::sleep(STALL).await;
        };
        tokio::select! {
            served = served.instrument(self.span.clone()) => served,
            () = lingered => Ok(()),
        }
    }

    /// Counts the frames behind number `before`, which were passed to the worker.
    fn count(&self, lane: wire::Lane, frames: &Frames, before: u64) {
        let mut tally = Tally::default();
        let is_new = |frame: &Frame<'_>| {
            frame.header.opcode != Ack::OPCODE && frame.header.sequence > before
        };
        frames.iter().filter(is_new).for_each(|frame| tally.add(&frame));
        self.meter.passed(&tally);
        // Also without a new command: the session may have taken the turn for acknowledgements.
        if lane == wire::Lane::Commands
            && let Some(turns) = &self.turns
        {
            turns.pass();
        }
    }

    /// A client has sent a blob.
    pub(super) fn blob_arrived(self: &Arc<Self>, hash: Hash, blob: Bytes) {
        if self.code.arrived(hash, blob) == CodeStep::Send {
            self.start_sending();
        }
    }

    /// Sends the queued code to the worker.
    fn start_sending(self: &Arc<Self>) {
        let session = self.clone();
        tokio::spawn(async move {
            while let Some(next) = session.code.next() {
                match next {
                    Next::Ask(hash) => session.commands.push(&Event::NeedBlob { hash }),
                    Next::Code(hash, code) => {
                        if !session.send_code(hash, &code).await {
                            return;
                        }
                    }
                }
            }
        });
    }

    /// Sends the code of a module to the worker. Returns `false` if the worker has ended.
    async fn send_code(&self, hash: Hash, code: &Bytes) -> bool {
        self.code.may_send(code).await;
        let total = code.len() as u64;
        let mut at = 0;
        loop {
            let part = code.slice(at..(at + BLOB_PART).min(code.len()));
            at += part.len();
            let frame = WorkerBlob { hash, total, part };
            let mut out = Vec::new();
            put_frame(&mut out, WorkerBlob::OPCODE, 0, 0, |out| frame.encode(out));
            if !self.commands.send_to_worker(out.into()).await {
                return false;
            }
            if at >= code.len() {
                return true;
            }
        }
    }
}

/// A report of a session to the lease table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has work.
    Busy,
    /// It has no work in flight. If commands wait, a report that it is busy follows.
    Idle,
}

/// The turns of one session of a session-exclusive lease: its commands reach the worker only while it has the turn.
///
/// A session asks for the turn when commands arrive. It gives the turn back when the worker has completed everything,
/// or when the lease table pauses it and the work in flight is complete. Work that then waits for its client or for
/// something else, and not for the device, does not keep the turn: the worker asks for another one.
pub(super) struct Turns {
    /// Counts the batches of frames that were passed to the worker, from a random number on: a worker that outlives its
    /// node may answer the next one with the number of an earlier request.
    passed: AtomicU64,
    /// There are [`messages`](Self::messages) for the worker.
    has_messages: Notify,
    /// The commands after which the worker was drained.
    drained: AtomicU64,
    /// Locked while the lane opens or closes.
    state: Mutex<TurnState>,
    /// Begins when the session is paused with work in flight, and ends when that is complete.
    drain_time: DrainTime,
    report: Box<dyn Fn(Turn) + Send + Sync>,
}

/// Writes the message to the worker that its session has the turn, or shall give it back.
fn put_turn(out: &mut Vec<u8>, has_turn: bool) {
    put_frame(out, SetTurn::OPCODE, 0, 0, |out| SetTurn { has_turn }.encode(out));
}

/// Whether a session has the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It has none. It has reported that it is idle, if it has had one.
    Without,
    Has,
    /// The lease table takes the turn back, and work is in flight.
    GivesBack,
}

struct TurnState {
    phase: Phase,
    /// Whether the worker has asked for the turn, and has not got it.
    is_wanted: bool,
    /// Whether to tell the worker that it has the turn.
    has_begun: bool,
    /// Whether to tell the worker that it shall give the turn back.
    is_requested: bool,
}

impl Turns {
    pub(super) fn new(report: impl Fn(Turn) + Send + Sync + 'static) -> Self {
        // The standard library keys each state at random. Half of the numbers leave room for all that follow.
        let first = RandomState::new().hash_one(0) / 2;
        Self {
            passed: AtomicU64::new(first),
            has_messages: Notify::new(),
            drained: AtomicU64::new(first),
            state: Mutex::new(TurnState {
                phase: Phase::Without,
                is_wanted: false,
                has_begun: false,
                is_requested: false,
            }),
            drain_time: DrainTime::default(),
            report: Box::new(report),
        }
    }

    fn report(&self, turn: Turn) {
        (self.report)(turn);
    }

    /// Frames of the lane of commands were passed to the worker.
    fn pass(&self) {
        self.passed.fetch_add(1, Ordering::SeqCst);
        self.has_messages.notify_one();
    }

    /// Requests the turn back from the worker, which has work in flight.
    fn request_back(&self, state: &mut TurnState) {
        self.drain_time.begin();
        state.is_requested = true;
        self.has_messages.notify_one();
    }

    /// Lets the work go on for which the worker wants the turn, if the session has it. Returns whether it does.
    fn go_on(&self) -> bool {
        let mut state = self.state.lock();
        let goes_on = state.is_wanted && state.phase == Phase::Has;
        if goes_on {
            state.is_wanted = false;
            state.has_begun = true;
            self.pass();
        }
        goes_on
    }

    /// The messages that wait for the worker.
    fn messages(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut state = self.state.lock();
        if std::mem::take(&mut state.has_begun) {
            put_turn(&mut out, true);
        }
        let drain = Drain { request: self.request() };
        put_frame(&mut out, Drain::OPCODE, 0, 0, |out| drain.encode(out));
        if std::mem::take(&mut state.is_requested) {
            put_turn(&mut out, false);
        }
        out
    }

    /// The number of the next request to drain.
    fn request(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }

    /// The worker has completed everything up to a request. `set_running` opens or closes the lane of commands. Returns
    /// whether the session has reported that it is idle.
    fn drained(&self, request: u64, set_running: impl Fn(bool)) -> bool {
        let passed = self.passed.load(Ordering::SeqCst);
        // A hostile worker may answer again and again, or what it was not asked.
        if request > passed || self.drained.fetch_max(request, Ordering::SeqCst) >= request {
            return false;
        }
        passed == request && self.end_if_idle(&mut self.state.lock(), set_running)
    }

    /// Ends the turn if nothing was passed to the worker. A session that takes no more commands would keep it.
    fn give_back_unused(&self, set_running: impl Fn(bool)) {
        let mut state = self.state.lock();
        if state.phase == Phase::Has && self.is_idle() {
            self.end_if_idle(&mut state, set_running);
        }
    }

    /// Closes the lane of commands. If nothing that was passed to the worker is in flight, reports that the session is idle.
    /// Returns whether it does.
    fn end_if_idle(&self, state: &mut TurnState, set_running: impl Fn(bool)) -> bool {
        set_running(false);
        // A command may have passed just before that.
        let is_idle = self.is_idle();
        if is_idle {
            state.phase = Phase::Without;
            self.drain_time.end();
            self.report(Turn::Idle);
        } else if state.phase == Phase::Has {
            set_running(true);
        }
        is_idle
    }

    /// Whether the worker has completed everything that was passed to it.
    fn is_idle(&self) -> bool {
        self.drained.load(Ordering::SeqCst) == self.passed.load(Ordering::SeqCst)
    }

    /// Applies `RunSession` or `PauseSession` of the lease table.
    fn set(&self, has_turn: bool, set_running: impl Fn(bool)) {
        let mut state = self.state.lock();
        if has_turn {
            state.phase = Phase::Has;
            set_running(true);
            self.drain_time.end();
        } else if state.phase == Phase::Has {
            // A session without the turn has reported that. A second report would end its next turn.
            state.phase = Phase::GivesBack;
            if !self.end_if_idle(&mut state, set_running) {
                self.request_back(&mut state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use cuda_lease::authority::Tenant;

    use super::*;
    use crate::supervisor::blobs::BlobStore;

    /// A session whose worker is the test, which has the other ends of its lanes.
    fn of_test(turns: Option<Turns>) -> (Arc<Session>, [tokio::net::UnixStream; 2]) {
        let [commands, bulk] = [(); 2].map(|()| tokio::net::UnixStream::pair().unwrap());
        let died = Box::new(|| Error::setting("a test", "died"));
        let terms = SessionTerms { epoch: 1, died, span: Span::none() };
        let blobs = Arc::<BlobStore>::default().of(&Tenant::local());
        let meter = Arc::new(Meter::new(Arc::default()));
        let session = Session::start(terms, (commands.0, bulk.0), blobs, meter, turns);
        (session, [commands.1, bulk.1])
    }

    /// Reads a message of the supervisor.
    async fn next(worker: &mut tokio::net::UnixStream) -> (u16, Vec<u8>) {
        let next = crate::supervisor::streams::read_frame(worker);
        let next = tokio::time::timeout(std::time::Duration::from_secs(30), next).await;
        next.expect("the worker gets no message").unwrap()
    }

    /// Reads a message about the turn.
    async fn next_turn(worker: &mut tokio::net::UnixStream) -> bool {
        let (opcode, body) = next(worker).await;
        assert_eq!(opcode, SetTurn::OPCODE);
        SetTurn::decode(&body).unwrap().has_turn
    }

    #[test]
    fn turn_is_given_back_when_everything_is_complete() {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let own = reports.clone();
        let turns = Turns::new(move |turn| own.lock().unwrap().push(turn));
        turns.pass();
        let request = turns.request();
        turns.pass();
        turns.drained(request, |_| panic!("a command is in flight"));
        assert!(reports.lock().unwrap().is_empty());
        let lane = Mutex::new(true);
        let set_running = |is_running| *lane.lock().unwrap() = is_running;
        assert!(turns.drained(turns.request(), set_running));
        assert!(!*lane.lock().unwrap());
        turns.set(false, set_running);
        // The worker answers once more, and what it was not asked.
        for request in [turns.request(), 0, turns.request() + 1, turns.request()] {
            assert!(!turns.drained(request, |_| panic!("the answer has an effect")));
        }
        assert_eq!((*reports.lock().unwrap()).as_slice(), [Turn::Idle]);
    }

    /// Otherwise a session goes on without the turn.
    #[test]
    fn lane_stays_closed_that_is_paused_while_a_late_command_opens_it() {
        let (turns, lane) = (Turns::new(|_| ()), Mutex::new(true));
        let change = |is_running| *lane.lock().unwrap() = is_running;
        turns.set(true, change);
        turns.pass();
        std::thread::scope(|scope| {
            let set_running = |is_running| {
                if is_running {
                    scope.spawn(|| turns.set(false, change));
                    std::thread::sleep(std::time::Duration::from_millis(50));
                } else {
                    turns.pass();
                }
                change(is_running);
            };
            assert!(!turns.drained(turns.request(), set_running));
        });
        assert!(!*lane.lock().unwrap());
    }

    /// Otherwise two sessions run at a time after a restart of the node.
    #[test]
    fn answer_to_an_earlier_node_gives_no_turn_back() {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let own = reports.clone();
        let turns = Turns::new(move |turn| own.lock().unwrap().push(turn));
        turns.pass();
        for passed in 1..4 {
            let earlier = Turns::new(|_| ());
            (0..passed).for_each(|_| earlier.pass());
            let late = earlier.request();
            assert!(!turns.drained(late, |_| panic!("the answer has an effect")));
        }
        // The numbers of earlier versions begin at 0.
        assert!(!turns.drained(1, |_| panic!("the answer has an effect")));
        assert!(turns.drained(turns.request(), |_| ()));
        assert_eq!((*reports.lock().unwrap()).as_slice(), [Turn::Idle]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn session_is_ended_while_the_error_of_its_dead_worker_is_found() {
        let [commands, bulk] = [(); 2].map(|()| tokio::net::UnixStream::pair().unwrap());
        let (session_of, session) = std::sync::mpsc::channel::<Arc<Session>>();
        let (ended, has_ended) = std::sync::mpsc::channel();
        let error = |text| Error::setting("a test", text);
        let died = Box::new(move || {
            let session = session.recv().unwrap();
            std::thread::spawn(move || {
                session.end(error("ended"));
                ended.send(()).unwrap();
            });
            has_ended.recv_timeout(std::time::Duration::from_secs(30)).expect("a deadlock");
            error("died")
        });
        let terms = SessionTerms { epoch: 1, died, span: Span::none() };
        let blobs = Arc::<BlobStore>::default().of(&Tenant::local());
        let meter = Arc::new(Meter::new(Arc::default()));
        let session = Session::start(terms, (commands.0, bulk.0), blobs, meter, None);
        session_of.send(session.clone()).unwrap();
        drop((commands.1, bulk.1));
        let ended = tokio::time::timeout(std::time::Duration::from_secs(60), session.ended());
        ended.await.expect("the session does not end");
        let cause = session.cause.lock().clone().unwrap();
        assert!(cause.to_string().contains("ended"), "{cause}");
    }

    /// Otherwise the session keeps the turn from others for a time slice, without work.
    #[tokio::test]
    async fn acknowledgement_alone_gives_the_turn_back() {
        let (session, [mut commands, _bulk]) = of_test(Some(Turns::new(|_| ())));
        let mut acknowledgement = Vec::new();
        put_frame(&mut acknowledgement, Ack::OPCODE, 0, 0, |out| Ack { received: 0 }.encode(out));
        let mut buffer = wire::FrameBuffer::default();
        buffer.extend(&acknowledgement);
        session.count(wire::Lane::Commands, &buffer.take().unwrap(), 0);
        assert!(!next_turn(&mut commands).await);
        assert_eq!(next(&mut commands).await.0, Drain::OPCODE);
    }

    #[test]
    fn session_without_work_gives_the_turn_back_at_once() {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let own = reports.clone();
        let turns = Turns::new(move |turn| own.lock().unwrap().push(turn));
        turns.set(true, |_| ());
        turns.set(false, |_| ());
        assert_eq!((*reports.lock().unwrap()).as_slice(), [Turn::Idle]);
    }

    /// The connection that has sent the commands ends before they pass. Otherwise their session keeps the turn from others for
    /// a time slice, again and again.
    #[tokio::test]
    async fn turn_for_commands_that_are_gone_is_given_back_at_once() {
        let (reports, mut reported) = tokio::sync::mpsc::unbounded_channel();
        let turns = Turns::new(move |turn| reports.send(turn).unwrap());
        let (session, _worker) = of_test(Some(turns));
        session.set_turn(true);
        assert_eq!(reported.try_recv(), Ok(Turn::Idle));
        session.set_turn(false);
        assert!(reported.try_recv().is_err());
    }

    /// The lease of a session that waits for its turn ends, with grace for work in flight. It takes no more commands, so no
    /// work begins in its turn. Otherwise it keeps the turn from others until its worker is killed.
    #[tokio::test]
    async fn session_that_takes_no_more_commands_gives_its_turn_back_at_once() {
        let (reports, mut reported) = tokio::sync::mpsc::unbounded_channel();
        let turns = Turns::new(move |turn| reports.send(turn).unwrap());
        let (session, _worker) = of_test(Some(turns));
        session.stop_admission();
        session.set_turn(true);
        assert_eq!(reported.try_recv(), Ok(Turn::Idle));
    }

    /// Work of a lease that ends, which has waited for its client, may complete in the grace of the lease.
    #[tokio::test]
    async fn work_in_flight_goes_on_in_its_turn_also_without_more_commands() {
        use tokio::io::AsyncWriteExt;
        let (reports, mut reported) = tokio::sync::mpsc::unbounded_channel();
        let turns = Turns::new(move |turn| reports.send(turn).unwrap());
        let (session, [mut commands, _bulk]) = of_test(Some(turns));
        let mut wanted = Vec::new();
        put_frame(&mut wanted, WantTurn::OPCODE, 0, 0, |out| WantTurn {}.encode(out));
        commands.write_all(&wanted).await.unwrap();
        assert_eq!(reported.recv().await, Some(Turn::Busy));
        session.stop_admission();
        session.set_turn(true);
        assert!(!next_turn(&mut commands).await);
        assert!(next_turn(&mut commands).await);
    }

    /// A hostile worker wants the turn again and again. Otherwise each time the lease table looks for the next session.
    #[tokio::test]
    async fn turn_that_a_worker_wants_is_reported_once_until_it_has_it() {
        use tokio::io::AsyncWriteExt;
        let (reports, mut reported) = tokio::sync::mpsc::unbounded_channel();
        let turns = Turns::new(move |turn| reports.send(turn).unwrap());
        let (session, [mut commands, _bulk]) = of_test(Some(turns));
        let mut wanted = Vec::new();
        for _ in 0..100 {
            put_frame(&mut wanted, WantTurn::OPCODE, 0, 0, |out| WantTurn {}.encode(out));
        }
        // It is taken behind the others.
        let hash = [1; 32];
        put_frame(&mut wanted, NeedCode::OPCODE, 0, 0, |out| NeedCode { hash }.encode(out));
        commands.write_all(&wanted).await.unwrap();
        assert_eq!(reported.recv().await, Some(Turn::Busy));
        while session.code.wanted().is_empty() {
            tokio::task::yield_now().await;
        }
        session.set_turn(true);
        assert!(reported.try_recv().is_err());
        assert!(!next_turn(&mut commands).await);
        assert!(next_turn(&mut commands).await);
        assert_eq!(next(&mut commands).await.0, Drain::OPCODE);
    }

    /// Otherwise its requests fill the memory of the supervisor while a client keeps the lease.
    #[tokio::test]
    async fn session_ends_whose_worker_asks_for_code_without_end() {
        use tokio::io::AsyncWriteExt;
        let (session, [mut commands, _bulk]) = of_test(None);
        let mut requests = Vec::new();
        for number in 0..10_000u64 {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&number.to_le_bytes());
            put_frame(&mut requests, NeedCode::OPCODE, 0, 0, |out| NeedCode { hash }.encode(out));
        }
        commands.write_all(&requests).await.unwrap();
        let ended = tokio::time::timeout(std::time::Duration::from_secs(30), session.ended());
        ended.await.expect("the worker lives on");
        let cause = session.cause.lock().clone().unwrap();
        assert!(cause.to_string().contains("wait for their code"), "{cause}");
    }

    /// A client loads a module again and again, with a few bytes each time.
    #[tokio::test]
    async fn code_for_a_worker_is_limited_by_time() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        const BYTES: usize = 60 << 20;
        let (session, [mut commands, _bulk]) = of_test(None);
        let hash = [1; 32];
        session.blob_arrived(hash, vec![0; BYTES].into());
        let (started, mut buffer) = (std::time::Instant::now(), vec![0; 1 << 20]);
        for _ in 0..12 {
            let mut request = Vec::new();
            put_frame(&mut request, NeedCode::OPCODE, 0, 0, |out| NeedCode { hash }.encode(out));
            commands.write_all(&request).await.unwrap();
            let mut read = 0;
            while read < BYTES {
                read += commands.read(&mut buffer).await.unwrap();
            }
        }
        // 512 MiB at once, and 64 MiB per second.
        assert!(started.elapsed() >= std::time::Duration::from_secs(3));
    }
}
