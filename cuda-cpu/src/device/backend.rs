//! Commands and requests.

use std::sync::Arc;

use cuda_core::{
    AllocId, Backend, Command, DeviceInfo, EntryInfo, Error, EventId, HostBlock, MemoryInfo,
    ModuleId, ModuleImage, ModuleInfo, Notice, NoticeSink, Reply, Request, Result, StreamId,
    entry_params,
};
use parking_lot::{Mutex, RwLock};
use rayon::{ThreadPool, ThreadPoolBuilder};
use rustc_hash::FxHashMap;

use super::{
    later::Later,
    lost::{self, Lost},
    modules::LoadedModule,
    notices::Notices,
    parked::Parked,
    pumps::Pumps,
    queue::Queue,
    resolve::{Names, host_range, unknown},
    signal::Signal,
    timing::Timing,
    translate,
    watching::Watching,
    work::Work,
};
use crate::{CpuOptions, Memory, OutOfMemory, Program};

/// Streams that run at the same time; further ones wait for a thread.
const MAX_PUMPS: usize = 16;

/// The CPU device. Made by [`CpuProvider`](crate::CpuProvider).
pub struct CpuBackend {
    info: DeviceInfo,
    timing: Timing,
    shared: Arc<Shared>,
    names: Names,
    streams: RwLock<FxHashMap<StreamId, Arc<Queue>>>,
    /// Streams that were destroyed before they had run everything.
    leftover: Mutex<Vec<Arc<Queue>>>,
    /// The latest recording of each event.
    events: RwLock<FxHashMap<EventId, Arc<Signal>>>,
    /// Held while something is made known and put into its queue that work in other queues waits for: else a thread
    /// could put the wait in front of it.
    order: Mutex<()>,
}

/// What queues use while they run.
pub(crate) struct Shared {
    pub(crate) memory: Arc<Memory>,
    pub(crate) pumps: Pumps,
    /// Help pumps to run blocks, where there is more than one thread.
    pub(crate) pool: Option<ThreadPool>,
    /// For every launch.
    pub(crate) watching: Watching,
    pub(crate) lost: Lost,
    pub(crate) notices: Notices,
    /// For what adversarial timing holds back.
    pub(crate) clock: Later<Due>,
    pub(crate) parked: Parked,
}

/// What was held back.
pub(crate) enum Due {
    Queue(Arc<Queue>, Arc<Shared>),
    Notice(Notice, Arc<Shared>),
}

impl Due {
    fn act(self) {
        match self {
            Due::Queue(queue, shared) => queue.start(&shared),
            Due::Notice(notice, shared) => {
                shared.notices.post(notice);
                shared.pumps.start(None, shared.clone());
            }
        }
    }
}

impl Shared {
    fn new(
        memory: Memory,
        pumps: Pumps,
        pool: Option<ThreadPool>,
        watching: Watching,
        sink: Arc<dyn NoticeSink>,
    ) -> Self {
        Self {
            memory: Arc::new(memory),
            pumps,
            pool,
            watching,
            lost: Lost::default(),
            notices: Notices::new(sink),
            clock: Later::new("cuda-cpu-clock", Due::act),
            parked: Parked::default(),
        }
    }
}

impl CpuBackend {
    pub(crate) fn new(
        info: DeviceInfo,
        workers: usize,
        options: &CpuOptions,
        notices: Arc<dyn NoticeSink>,
    ) -> Result<Self> {
        let failed = |detail: String| Error::Host {
            what: "cannot start the threads of the CPU device".into(),
            detail,
        };
        // A pump runs blocks too, so the pool has one thread less; and one thread means one.
        let build = |helpers| {
            let name = |index| format!("cuda-cpu-{index}");
            ThreadPoolBuilder::new().num_threads(helpers).thread_name(name).build()
        };
        let pool = (workers > 1).then(|| build(workers - 1)).transpose();
        let pool = pool.map_err(|error| failed(error.to_string()))?;
        let pumps = Pumps::new(if workers > 1 { MAX_PUMPS } else { 1 });
        let pumps = pumps.map_err(|error| failed(error.to_string()))?;
        let memory = Memory::new(info.memory);
        let memory = if options.checks.uninitialised { memory.tracking() } else { memory };
        let watching = Watching::new(options);
        let shared = Arc::new(Shared::new(memory, pumps, pool, watching, notices));
        let (names, streams, leftover, events, order) = Default::default();
        Ok(Self { info, timing: options.timing, shared, names, streams, leftover, events, order })
    }

    fn stream(&self, id: StreamId) -> Result<Arc<Queue>> {
        self.streams.read().get(&id).cloned().ok_or_else(|| unknown("a stream", id.0))
    }

    /// What is left to do when the stream gets there; nothing for commands that are done at once.
    fn resolve(&self, command: Command<'_>, host: &[Arc<HostBlock>]) -> Result<Option<Work>> {
        Ok(Some(match command {
            Command::Alloc { id, bytes } => {
                return self.alloc(id, bytes).map_err(translate::out_of_memory);
            }
            Command::Free { id } => {
                let (address, bytes) = self.names.remove_allocation(id)?;
                self.shared.memory.announce_free(bytes);
                Work::Free { address, bytes }
            }
            Command::Upload { from, to, bytes } => {
                let (from, range) = host_range(from, bytes, host)?;
                Work::Upload { from, range, to: self.names.address(to, bytes)? }
            }
            Command::Download { from, to, bytes } => {
                let (to, range) = host_range(to, bytes, host)?;
                Work::Download { from: self.names.address(from, bytes)?, to, range }
            }
            Command::Copy { from, to, bytes } => {
                let (from, to) = (self.names.address(from, bytes)?, self.names.address(to, bytes)?);
                Work::Copy { from, to, bytes }
            }
            Command::Fill { to, pattern, count } => {
                let bytes = count.saturating_mul(pattern.bytes());
                Work::Fill { to: self.names.address(to, bytes)?, pattern, count }
            }
            Command::Launch(launch) => {
                let kernel = self.names.kernel(&launch)?;
                kernel.check(&self.shared)?;
                Work::Launch(kernel)
            }
            Command::Record { event } => {
                let signal = Arc::new(Signal::default());
                self.events.write().insert(event, signal.clone());
                Work::Record(signal)
            }
            Command::Wait { event } => match self.events.read().get(&event) {
                Some(signal) => Work::Wait(signal.clone()),
                None => return Ok(None),
            },
            Command::Notify { token } => Work::Notify(token),
            _ => return Err(Error::unsupported("a command of a newer version", "cpu")),
        }))
    }

    /// Done at once where there is room. Where there is none before frees that are enqueued have run, and
    /// where time is not to be relied upon, it is the stream's work.
    fn alloc(&self, id: AllocId, bytes: u64) -> Result<Option<Work>, OutOfMemory> {
        let memory = &self.shared.memory;
        let address = memory.promise(bytes)?;
        let now = self.timing == Timing::AsFastAsPossible && memory.has_room_for(address);
        if now {
            memory.fulfil(address, bytes)?;
        }
        self.names.add_allocation(id, address, bytes);
        Ok((!now).then_some(Work::Alloc { address, bytes }))
    }

    fn query(&self, stream: StreamId) -> Result<bool> {
        let idle = self.stream(stream)?.is_idle();
        self.shared.lost.check()?;
        Ok(idle)
    }

    fn synchronize(&self, stream: StreamId) -> Result<()> {
        self.stream(stream)?.finish(self.shared.lost.epoch(), &self.shared);
        self.shared.lost.check()
    }

    fn destroy(&self, id: StreamId) {
        let removed = self.streams.write().remove(&id);
        let mut leftover = self.leftover.lock();
        leftover.retain(|queue| !queue.is_idle());
        leftover.extend(removed.filter(|queue| !queue.is_idle()));
    }

    fn load(&self, id: ModuleId, image: &ModuleImage) -> Result<ModuleInfo> {
        let ModuleImage::Ptx(text) = image else {
            return Err(Error::unsupported("a module of a newer kind", "cpu"));
        };
        let parse = |error: cuda_ptx::Error| Error::InvalidPtx { detail: error.to_string() };
        let module = cuda_ptx::parse(text).map_err(parse)?;
        let loaded = Program::load(&module, &self.shared.memory);
        let program = loaded.map_err(|error| Error::LoadFailed { log: error.to_string() })?;
        let entries = program.entries().iter().map(|entry| {
            let signature = module.entry(&entry.name);
            EntryInfo {
                name: entry.name.clone(),
                params: signature.map_or_else(Vec::new, |entry| entry_params(&entry.params)),
                max_threads: self.info.max_threads_per_block,
            }
        });
        let info = ModuleInfo { entries: entries.collect(), log: String::new() };
        self.names.add_module(id, LoadedModule::new(program, self.shared.memory.clone()));
        Ok(info)
    }

    fn memory(&self) -> MemoryInfo {
        let usage = self.shared.memory.usage();
        MemoryInfo { used: usage.used, free: usage.total - usage.used, total: usage.total }
    }

    /// Waits until every queue has skipped what it had, then forgets the fault.
    fn reset(&self) -> Reply {
        let mut queues: Vec<_> = self.streams.read().values().cloned().collect();
        queues.append(&mut self.leftover.lock());
        let epoch = self.shared.lost.epoch();
        queues.iter().for_each(|queue| queue.finish(epoch, &self.shared));
        Reply::Reset { lost: self.shared.lost.clear() }
    }
}

/// What is waited for across queues, and what waits: events, and room that is announced to become free.
fn is_waited_for(command: &Command<'_>) -> bool {
    use Command::{Alloc, Free, Record, Wait};
    matches!(command, Record { .. } | Wait { .. } | Alloc { .. } | Free { .. })
}

fn runs_when_lost(command: &Command<'_>) -> bool {
    use Command::{Free, Notify, Record, Wait};
    matches!(command, Free { .. } | Notify { .. } | Record { .. } | Wait { .. })
}

impl Backend for CpuBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    unsafe fn enqueue(
        &self,
        stream: StreamId,
        command: Command<'_>,
        host: &[Arc<HostBlock>],
    ) -> Result<()> {
        let queue = self.stream(stream)?;
        // Before the check: should the device be lost and reset meanwhile, this does not run.
        let epoch = self.shared.lost.epoch();
        // Also on a lost device who asked is answered, and memory is given back, which takes marks where
        // several streams have used it.
        if !runs_when_lost(&command) {
            let checked = self.shared.lost.check_at(epoch);
            checked.map_err(|cause| lost::refused(&self.info.address, &cause))?;
        }
        let _order = is_waited_for(&command).then(|| self.order.lock());
        if let Some(work) = self.resolve(command, host)? {
            queue.push(work, epoch, &self.shared);
        }
        Ok(())
    }

    fn request(&self, request: Request) -> Result<Reply> {
        match request {
            Request::CreateStream { id, .. } => {
                self.streams.write().insert(id, Queue::new(id, self.timing));
            }
            Request::DestroyStream { id } => self.destroy(id),
            Request::Query { stream } => return self.query(stream).map(Reply::Idle),
            Request::Synchronize { stream } => self.synchronize(stream)?,
            Request::LoadModule { id, image } => return Ok(Reply::Module(self.load(id, &image)?)),
            Request::UnloadModule { id } => {
                drop(self.names.remove_module(id));
                self.shared.parked.wake(&self.shared);
            }
            Request::Memory => return Ok(Reply::Memory(self.memory())),
            Request::Reset => return Ok(self.reset()),
            _ => return Err(Error::unsupported("a request of a newer version", "cpu")),
        }
        Ok(Reply::Done)
    }
}
