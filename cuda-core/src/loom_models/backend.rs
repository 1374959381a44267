//! A backend that writes down what it is given, and says whether that is an order.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex as Plain, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::{
    Access, AllocId, Allocation, Backend, Command, Device, DeviceInfo, Error, EventId, HostBlock,
    HostId, HostRegion, Notice, NoticeSink, Pattern, Provider, Region, Reply, Request, Result,
    Stream, StreamId, Ticket,
    sync::{Condvar, Mutex, atomic::AtomicU64},
};

/// What happened on a stream, or what the host learnt.
struct Entry {
    stream: StreamId,
    what: What,
}

enum What {
    Use(AllocId, Access),
    Freed(AllocId),
    Recorded(EventId),
    /// Waits for this entry.
    After(usize),
    /// The stream has run all that it had, and the host knows.
    Over,
}

/// The log is not loom's: nothing here is a point where threads switch but where `enqueue` begins and `step` is
/// raised, which orders nothing.
pub(super) struct Model {
    info: DeviceInfo,
    log: Plain<Vec<Entry>>,
    steps: Plain<HashMap<StreamId, Arc<AtomicU64>>>,
    /// Enqueues until one is refused.
    refuse: AtomicUsize,
    sink: OnceLock<Arc<dyn NoticeSink>>,
    notices: Mutex<Notices>,
    asked: Condvar,
}

#[derive(Default)]
struct Notices {
    queue: VecDeque<(StreamId, u64)>,
    tokens: Vec<u64>,
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
            log: Plain::default(),
            steps: Plain::default(),
            refuse: AtomicUsize::new(0),
            sink: OnceLock::new(),
            notices: Mutex::default(),
            asked: Condvar::new(),
        });
        let device = Device::open(&Opens(model.clone()), 0).unwrap();
        Self { device, model }
    }

    pub(super) fn stream(&self) -> Stream {
        self.device.new_stream().unwrap()
    }

    pub(super) fn memory(&self, stream: &Stream) -> Arc<Allocation> {
        Allocation::new(stream, 1).unwrap()
    }
}

pub(super) fn write(stream: &Stream, memory: &Allocation) -> Result<Ticket> {
    let command = Command::Fill { to: memory.region(0), pattern: Pattern::Byte(0), count: 1 };
    stream.submit(command, &[(memory, Access::Write)], None)
}

pub(super) fn read(stream: &Stream, memory: &Allocation) -> Result<Ticket> {
    let to = HostRegion { block: HostId(0), offset: 0 };
    let command = Command::Download { from: memory.region(0), to, bytes: 1 };
    stream.submit(command, &[(memory, Access::Read)], None)
}

/// A submission that uses no memory that anybody shares.
pub(super) fn nothing(stream: &Stream) -> Result<Ticket> {
    let to = Region { alloc: AllocId(u64::MAX), offset: 0 };
    stream.submit(Command::Fill { to, pattern: Pattern::Byte(0), count: 1 }, &[], None)
}

struct Opens(Arc<Model>);

impl Provider for Opens {
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

impl Backend for Model {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    unsafe fn enqueue(
        &self,
        stream: StreamId,
        command: Command<'_>,
        _: &[Arc<HostBlock>],
    ) -> Result<()> {
        let step = plain(&self.steps)[&stream].clone();
        step.fetch_add(1, Relaxed);
        if self.is_refused() {
            return Err(Error::AlreadyEnded);
        }
        if let Command::Notify { token } = command {
            self.ask(stream, token);
        } else {
            self.write_down(stream, &command);
        }
        Ok(())
    }

    fn request(&self, request: Request) -> Result<Reply> {
        match request {
            Request::CreateStream { id, .. } => {
                plain(&self.steps).insert(id, Arc::default());
            }
            Request::Synchronize { stream } => {
                plain(&self.log).push(Entry { stream, what: What::Over });
            }
            _ => {}
        }
        Ok(Reply::Done)
    }
}

impl Model {
    /// Refuses the `nth` enqueue from now on; none for 0.
    pub(super) fn refuse(&self, nth: usize) {
        self.refuse.store(nth, Relaxed);
    }

    fn is_refused(&self) -> bool {
        let left = self.refuse.load(Relaxed);
        self.refuse.store(left.saturating_sub(1), Relaxed);
        left == 1
    }

    fn write_down(&self, stream: StreamId, command: &Command<'_>) {
        let mut log = plain(&self.log);
        let recorded = |event| {
            let is_it = |e: &Entry| matches!(e.what, What::Recorded(other) if other == event);
            log.iter().rposition(is_it)
        };
        let what = match command {
            Command::Alloc { id, .. } => What::Use(*id, Access::Write),
            Command::Fill { to, .. } => What::Use(to.alloc, Access::Write),
            Command::Download { from, .. } => What::Use(from.alloc, Access::Read),
            Command::Free { id } => What::Freed(*id),
            Command::Record { event } => What::Recorded(*event),
            Command::Wait { event } => What::After(recorded(*event).unwrap()),
            other => unreachable!("{other:?}"),
        };
        log.push(Entry { stream, what });
    }

    /// How often memory was freed.
    pub(super) fn frees(&self) -> usize {
        plain(&self.log).iter().filter(|entry| matches!(entry.what, What::Freed(_))).count()
    }

    /// Checks that of every two uses of an allocation, unless both read, the streams put one first; and that
    /// freeing it is the last.
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

fn conflict(earlier: &Entry, later: &Entry) -> bool {
    match (&earlier.what, &later.what) {
        (What::Use(a, one), What::Use(b, other)) => {
            a == b && (*one == Access::Write || *other == Access::Write)
        }
        (What::Use(a, _), What::Freed(b)) => a == b,
        (What::Freed(a), What::Use(b, _) | What::Freed(b)) => {
            assert_ne!(a, b, "used after it was freed");
            false
        }
        _ => false,
    }
}

/// For every entry the set of those that streams and waits put before it. What the host knows to be over is
/// before all that it enqueues from then on.
fn before(log: &[Entry]) -> Vec<u128> {
    assert!(log.len() <= 128);
    let (mut streams, mut before) = (HashMap::<StreamId, u128>::new(), Vec::new());
    let mut known = 0;
    for (index, entry) in log.iter().enumerate() {
        let mine = streams.entry(entry.stream).or_default();
        *mine |= known;
        match entry.what {
            What::After(mark) => *mine |= before[mark] | (1 << mark),
            What::Over => known |= *mine,
            _ => {}
        }
        before.push(*mine);
        *mine |= 1 << index;
    }
    before
}

/// Notices: a thread of the model delivers them.
impl Model {
    fn ask(&self, stream: StreamId, token: u64) {
        let mut notices = self.notices.lock();
        notices.tokens.push(token);
        notices.queue.push_back((stream, token));
        drop(notices);
        self.asked.notify_one();
    }

    /// Answers everything that is asked for until the end.
    pub(super) fn deliver(&self) {
        loop {
            let mut notices = self.notices.lock();
            let next = loop {
                match notices.queue.pop_front() {
                    None if !notices.closed => self.asked.wait(&mut notices),
                    next => break next,
                }
            };
            drop(notices);
            let Some((stream, token)) = next else { return };
            self.sink.get().unwrap().notice(Notice { stream, token, status: Ok(()) });
        }
    }

    pub(super) fn close(&self) {
        self.notices.lock().closed = true;
        self.asked.notify_one();
    }

    /// The tokens so far.
    pub(super) fn tokens(&self) -> Vec<u64> {
        self.notices.lock().tokens.clone()
    }
}
