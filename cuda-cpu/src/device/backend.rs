//! Commands and requests.

use std::sync::Arc;

use cuda_core::{
    Backend, Command, DeviceInfo, EntryInfo, Error, EventId, HostBlock, MemoryInfo, ModuleId,
    ModuleImage, ModuleInfo, NoticeSink, Reply, Request, Result, StreamId, entry_params,
};
use parking_lot::RwLock;
use rayon::{ThreadPool, ThreadPoolBuilder};
use rustc_hash::FxHashMap;

use super::{
    lost::Lost,
    queue::Queue,
    resolve::{Names, host_range, unknown},
    signal::Signal,
    translate,
    work::Work,
};
use crate::{Memory, Program};

/// The CPU device. Made by [`CpuProvider`](crate::CpuProvider).
pub struct CpuBackend {
    info: DeviceInfo,
    shared: Arc<Shared>,
    names: Names,
    streams: RwLock<FxHashMap<StreamId, Arc<Queue>>>,
    /// The latest recording of each event.
    events: RwLock<FxHashMap<EventId, Arc<Signal>>>,
}

/// What queues use while they run.
pub(crate) struct Shared {
    pub(crate) memory: Memory,
    pub(crate) pool: ThreadPool,
    pub(crate) lost: Lost,
    pub(crate) notices: Arc<dyn NoticeSink>,
}

impl CpuBackend {
    pub(crate) fn new(
        info: DeviceInfo,
        workers: usize,
        notices: Arc<dyn NoticeSink>,
    ) -> Result<Self> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(workers)
            .thread_name(|index| format!("cuda-cpu-{index}"))
            .build()
            .map_err(|error| Error::Host {
                what: "cannot start the threads of the CPU device".into(),
                detail: error.to_string(),
            })?;
        let memory = Memory::new(info.memory);
        let shared = Arc::new(Shared { memory, pool, lost: Lost::default(), notices });
        let (names, streams, events) = Default::default();
        Ok(Self { info, shared, names, streams, events })
    }

    fn stream(&self, id: StreamId) -> Result<Arc<Queue>> {
        self.streams.read().get(&id).cloned().ok_or_else(|| unknown("a stream", id.0))
    }

    /// What is left to do when the stream gets there; nothing for commands that are done at once.
    fn resolve(&self, command: Command<'_>, host: &[Arc<HostBlock>]) -> Result<Option<Work>> {
        Ok(Some(match command {
            Command::Alloc { id, bytes } => {
                let address =
                    self.shared.memory.alloc(bytes, 0).map_err(translate::out_of_memory)?;
                self.names.add_allocation(id, address, bytes);
                return Ok(None);
            }
            Command::Free { id } => Work::Free(self.names.remove_allocation(id)?),
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

    fn query(&self, stream: StreamId) -> Result<bool> {
        let idle = self.stream(stream)?.is_idle();
        self.shared.lost.check()?;
        Ok(idle)
    }

    fn synchronize(&self, stream: StreamId) -> Result<()> {
        let signal = Arc::new(Signal::default());
        self.stream(stream)?.push(Work::Record(signal.clone()), &self.shared);
        signal.wait();
        self.shared.lost.check()
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
        self.names.add_module(id, program);
        Ok(info)
    }

    fn memory(&self) -> MemoryInfo {
        let usage = self.shared.memory.usage();
        MemoryInfo { used: usage.used, free: usage.total - usage.used, total: usage.total }
    }

    /// Waits until every queue has skipped what it had, then forgets the fault.
    fn reset(&self) -> Result<()> {
        let streams: Vec<_> = self.streams.read().keys().copied().collect();
        for stream in streams {
            // The fault that is about to be forgotten.
            let _ = self.synchronize(stream);
        }
        self.shared.lost.clear();
        Ok(())
    }
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
        // Memory is given back, and who asked is answered, also on a lost device.
        if !matches!(command, Command::Free { .. } | Command::Notify { .. }) {
            self.shared.lost.check()?;
        }
        if let Some(work) = self.resolve(command, host)? {
            queue.push(work, &self.shared);
        }
        Ok(())
    }

    fn request(&self, request: Request) -> Result<Reply> {
        match request {
            Request::CreateStream { id, .. } => {
                self.streams.write().insert(id, Queue::new(id));
            }
            Request::DestroyStream { id } => {
                self.streams.write().remove(&id);
            }
            Request::Query { stream } => return self.query(stream).map(Reply::Idle),
            Request::Synchronize { stream } => self.synchronize(stream)?,
            Request::LoadModule { id, image } => return Ok(Reply::Module(self.load(id, &image)?)),
            Request::UnloadModule { id } => self.names.remove_module(id, &self.shared.memory),
            Request::Memory => return Ok(Reply::Memory(self.memory())),
            Request::Reset => self.reset()?,
            _ => return Err(Error::unsupported("a request of a newer version", "cpu")),
        }
        Ok(Reply::Done)
    }
}
