//! A backend that records what it is given, and checks whether the record is an order.

use std::{
    any::Any,
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex as Plain, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::{
    Access, Allocation, Backend, Device, DeviceInfo, Error, NoticeSink, Provider, Result, Stream,
    Ticket,
    handle::{Attached, Keep, Operand},
    protocol::{
        AllocId, Answer, Capabilities, Control, Foreign, HostBlock, HostId, HostRegion, Notice,
        Pattern, Reply, Request, StreamId, Submission, Work,
    },
    sync::{Condvar, Mutex, atomic::AtomicU64},
};

/// A submission, a control, or knowledge of the host.
struct Entry {
    stream: StreamId,
    /// Its number on the stream, if it has one.
    number: Option<u64>,
    /// The entries that it names as coming first.
    after: Vec<usize>,
    effect: Effect,
}

enum Effect {
    None,
    Use(AllocId, Access),
    Freed(AllocId),
    /// The host knows that the stream has run everything up to this entry.
    Complete(usize),
}

/// The log is not loom's. Threads switch only where a submission begins, by an access to `steps` that orders nothing.
pub(super) struct Model {
    info: DeviceInfo,
    capabilities: Capabilities,
    log: Plain<Vec<Entry>>,
    steps: Plain<HashMap<StreamId, Arc<AtomicU64>>>,
    /// Submissions until one is refused.
    refuse: AtomicUsize,
    /// The stream whose next submission is refused.
    refuse_on: Plain<Option<StreamId>>,
    /// Reported completion.
    complete: Plain<HashMap<StreamId, u64>>,
    sink: OnceLock<Arc<dyn NoticeSink>>,
    reports: Mutex<Reports>,
    came: Condvar,
}

#[derive(Default)]
struct Reports {
    queue: VecDeque<Ticket>,
    /// Whether submissions are reported without a want, as early as can be. The report adds this to the number.
    eager: Option<u64>,
    closed: bool,
}

fn plain<T>(lock: &Plain<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device whose backend is a [`Model`].
pub(super) struct Rig {
    pub(super) device: Device,
    pub(super) model: Arc<Model>,
}

impl Rig {
    pub(super) fn new() -> Self {
        let model = Arc::new(Model {
            info: DeviceInfo::new("model", "model"),
            capabilities: Capabilities::local(1 << 20),
            log: Plain::default(),
            steps: Plain::default(),
            refuse: AtomicUsize::new(0),
            refuse_on: Plain::default(),
            complete: Plain::default(),
            sink: OnceLock::new(),
            reports: Mutex::default(),
            came: Condvar::new(),
        });
        let device = Device::open(&Opens(model.clone()), 0).unwrap();
        Self { device, model }
    }

    pub(super) fn stream(&self) -> Stream {
        self.device.new_stream().unwrap()
    }

    pub(super) fn memory(&self, stream: &Stream) -> Arc<Allocation> {
        stream.allocate(1).unwrap()
    }
}

pub(super) fn write(stream: &Stream, memory: &Allocation) -> Result<Ticket> {
    let work = Work::Fill { to: memory.region(0), pattern: Pattern::Byte(0), count: 1 };
    // SAFETY: the device of the models has no memory.
    unsafe {
        stream.submit(&work, &[Operand::new(memory, 0..1, Access::Write)], Attached::default())
    }
}

pub(super) fn read(stream: &Stream, memory: &Allocation) -> Result<Ticket> {
    let to = HostRegion { block: HostId(0), offset: 0 };
    let work = Work::Download { from: memory.region(0), to, bytes: 1 };
    // SAFETY: the device of the models has no memory.
    unsafe {
        stream.submit(&work, &[Operand::new(memory, 0..1, Access::Read)], Attached::default())
    }
}

/// A submission that uses no memory.
pub(super) fn nothing(stream: &Stream) -> Result<Ticket> {
    // SAFETY: the device of the models has no memory.
    unsafe { stream.submit(&Work::Join, &[], Attached::default()) }
}

/// A submission that retains a resource.
pub(super) fn retaining(stream: &Stream, keep: Keep) -> Result<Ticket> {
    // SAFETY: the device of the models has no memory.
    unsafe { stream.submit(&Work::Join, &[], Attached { keep: Some(keep), ..Attached::default() }) }
}

struct Opens(Arc<Model>);

// SAFETY: the model hands out no bytes.
unsafe impl Provider for Opens {
    fn scheme(&self) -> &'static str {
        "model"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn open(&self, _: u32, sink: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let _ = self.0.sink.set(sink);
        Ok(self.0.clone())
    }
}

// SAFETY: the model hands out no bytes, and no test reads any.
unsafe impl Backend for Model {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, submission: &Submission<'_>, _: &[Arc<HostBlock>]) -> Result<()> {
        let Submission { ticket, after, work } = submission;
        let step = plain(&self.steps)[&ticket.stream].clone();
        step.fetch_add(1, Relaxed);
        if self.is_refused(ticket.stream) {
            return Err(Error::AlreadyEnded);
        }
        let effect = match work {
            Work::Join => Effect::None,
            Work::Fill { to, .. } => Effect::Use(to.alloc, Access::Write),
            Work::Download { from, .. } => Effect::Use(from.alloc, Access::Read),
            other => unreachable!("{other:?}"),
        };
        self.record(ticket.stream, Some(ticket.number), after, effect);
        self.report_early(*ticket);
        Ok(())
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        match control {
            Control::CreateStream { id, .. } => {
                plain(&self.steps).insert(id, Arc::default());
            }
            Control::Allocate { id, at, .. } => {
                let made = Effect::Use(id, Access::Write);
                self.record(at.stream, Some(at.number), &[], made);
            }
            Control::Free { id, stream, after } => {
                self.record(stream, None, &after, Effect::Freed(id));
            }
            Control::Want { ticket } => self.ask(ticket),
            _ => {}
        }
        Ok(())
    }

    fn request(&self, _: Request, answer: Answer) {
        answer.give(Ok(Reply::Reached(false)));
    }

    unsafe fn peek(&self, stream: StreamId) -> Result<u64> {
        Ok(self.complete(stream))
    }

    unsafe fn block_until(&self, ticket: Ticket) -> Result<()> {
        self.completes(ticket);
        Ok(())
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    fn close(&self, retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {
        retained.iter().for_each(|(ticket, _)| self.completes(*ticket));
    }
}

impl Model {
    /// Refuses the `nth` submission from now on; none for 0.
    pub(super) fn refuse(&self, nth: usize) {
        self.refuse.store(nth, Relaxed);
    }

    /// Refuses the next submission to this stream.
    pub(super) fn refuse_on(&self, stream: &Stream) {
        *plain(&self.refuse_on) = Some(stream.id());
    }

    fn is_refused(&self, stream: StreamId) -> bool {
        let left = self.refuse.load(Relaxed);
        self.refuse.store(left.saturating_sub(1), Relaxed);
        left == 1 || plain(&self.refuse_on).take_if(|of| *of == stream).is_some()
    }

    /// Every ticket in `after` was accepted earlier, and the numbers of a stream count up by one.
    fn record(&self, stream: StreamId, number: Option<u64>, after: &[Ticket], effect: Effect) {
        let mut log = plain(&self.log);
        if let Some(number) = number {
            let last =
                log.iter().rev().find_map(|entry| entry.number.filter(|_| entry.stream == stream));
            assert_eq!(number, last.unwrap_or(0) + 1, "the numbers of {stream:?} have a gap");
        }
        let after = after.iter().map(|ticket| place(&log, *ticket)).collect();
        log.push(Entry { stream, number, after, effect });
    }

    /// The number of frees.
    pub(super) fn frees(&self) -> usize {
        plain(&self.log).iter().filter(|entry| matches!(entry.effect, Effect::Freed(_))).count()
    }

    /// Checks that the streams and their edges order every two uses of an allocation, unless both read, and that the
    /// free of it is last.
    pub(super) fn check_order(&self) {
        let log = plain(&self.log);
        let before = before(&log);
        for (later, entry) in log.iter().enumerate() {
            for (earlier, other) in log[..later].iter().enumerate() {
                let ordered = before[later] & (1 << earlier) != 0;
                assert!(ordered || !conflict(other, entry), "{earlier} and {later} race");
            }
        }
    }
}

/// The entry of a submission that was accepted.
fn place(log: &[Entry], ticket: Ticket) -> usize {
    let is_it =
        |entry: &Entry| entry.stream == ticket.stream && entry.number == Some(ticket.number);
    log.iter().position(is_it).expect("a ticket that was not accepted")
}

fn conflict(earlier: &Entry, later: &Entry) -> bool {
    match (&earlier.effect, &later.effect) {
        (Effect::Use(a, one), Effect::Use(b, other)) => {
            a == b && (*one == Access::Write || *other == Access::Write)
        }
        (Effect::Use(a, _), Effect::Freed(b)) => a == b,
        (Effect::Freed(a), Effect::Use(b, _) | Effect::Freed(b)) => {
            assert_ne!(a, b, "used after it was freed");
            false
        }
        _ => false,
    }
}

/// For every entry the set of those that its stream and its edges put before it. Entries that the host knows to be
/// complete are before everything that is submitted from then on.
fn before(log: &[Entry]) -> Vec<u128> {
    assert!(log.len() <= 128);
    let (mut streams, mut before) = (HashMap::<StreamId, u128>::new(), Vec::<u128>::new());
    let mut known = 0;
    for (index, entry) in log.iter().enumerate() {
        let upto = |at: &usize| before[*at] | (1 << *at);
        if let Effect::Complete(last) = &entry.effect {
            known |= upto(last);
        }
        let mine = streams.entry(entry.stream).or_default();
        *mine |= entry.after.iter().map(upto).fold(known, |all, earlier| all | earlier);
        before.push(*mine);
        *mine |= 1 << index;
    }
    before
}

/// Reports of progress, delivered by a thread of the model.
impl Model {
    /// Reports every submission at once, with a number that is too large by `excess`. Ignores wants meanwhile.
    pub(super) fn report_eagerly(&self, excess: Option<u64>) {
        self.reports.lock().eager = excess;
    }

    fn report_early(&self, ticket: Ticket) {
        let mut reports = self.reports.lock();
        if reports.eager.is_some() {
            reports.queue.push_back(ticket);
            drop(reports);
            self.came.notify_one();
        }
    }

    fn ask(&self, ticket: Ticket) {
        let mut reports = self.reports.lock();
        if reports.eager.is_none() {
            reports.queue.push_back(ticket);
            drop(reports);
            self.came.notify_one();
        }
    }

    /// The stream has run everything up to a ticket.
    fn completes(&self, ticket: Ticket) {
        let mut log = plain(&self.log);
        let last = place(&log, ticket);
        let effect = Effect::Complete(last);
        log.push(Entry { stream: ticket.stream, number: None, after: Vec::new(), effect });
        let mut complete = plain(&self.complete);
        let known = complete.entry(ticket.stream).or_default();
        *known = ticket.number.max(*known);
    }

    /// The number up to which a stream is complete.
    pub(super) fn complete(&self, stream: StreamId) -> u64 {
        plain(&self.complete).get(&stream).copied().unwrap_or(0)
    }

    /// Delivers all reports until the end.
    pub(super) fn deliver(&self) {
        loop {
            let mut reports = self.reports.lock();
            let next = loop {
                match reports.queue.pop_front() {
                    None if !reports.closed => self.came.wait(&mut reports),
                    next => break next,
                }
            };
            let eager = reports.eager;
            drop(reports);
            let Some(ticket) = next else { return };
            self.completes(ticket);
            let number = ticket.number + eager.unwrap_or(0);
            let notice =
                Notice::Progress { stream: ticket.stream, accepted: number, complete: number };
            // SAFETY: no test reads bytes.
            unsafe { self.sink.get().unwrap().notice(notice) };
        }
    }

    pub(super) fn close(&self) {
        self.reports.lock().closed = true;
        self.came.notify_one();
    }
}
