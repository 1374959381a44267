//! The CPU device as a backend: submissions and controls in, notices out.

use std::{any::Any, sync::Arc};

use cuda_core::{
    Backend, DeviceInfo, Error, MemoryInfo, NoticeSink, Result, Ticket,
    order::{Poison, uses_of},
    protocol::{
        AllocId, Answer, Capabilities, Control, Foreign, HostBlock, ModuleId, ModuleImage, Reply,
        Request, StreamId, Submission, Work as Asked,
    },
    sync::HelperThread,
};
use parking_lot::{Mutex, RwLock};
use rayon::{ThreadPool, ThreadPoolBuilder};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{
    job::Job,
    later::Later,
    lost::{self, Lost},
    modules::Modules,
    notices::Notices,
    parked::Parked,
    pumps::Pumps,
    queue::Queue,
    resolve::{Names, host_range, unknown},
    timing::Timing,
    translate,
    watching::Watching,
    work::Work,
};
use crate::{CpuOptions, Memory, OutOfMemory};

/// Streams that run at the same time. Further ones wait for a thread.
const MAX_PUMPS: usize = 16;

/// The CPU device. Made by [`CpuProvider`](crate::CpuProvider).
pub struct CpuBackend {
    info: DeviceInfo,
    capabilities: Capabilities,
    timing: Timing,
    shared: Arc<Shared>,
    names: Names,
    streams: RwLock<FxHashMap<StreamId, Arc<Queue>>>,
    /// Streams that were retired before they had run everything. Locked behind `streams`.
    leftover: Mutex<Vec<Arc<Queue>>>,
    /// Held while an allocation or a free is made known and put into its queue. Otherwise a thread could put an
    /// allocation in front of the free that it waits for.
    order: Mutex<()>,
    /// Loads modules.
    loader: HelperThread,
    /// Waits for the end of resets. Not the loader, since a kernel that a reset waits for may need a module to end.
    resetter: HelperThread,
}

/// State that queues use while they run.
pub(crate) struct Shared {
    pub(crate) memory: Arc<Memory>,
    pub(crate) modules: Modules,
    pub(crate) pumps: Pumps,
    /// Helps pumps to run blocks, where there is more than one thread.
    pub(crate) pool: Option<ThreadPool>,
    /// For every launch.
    pub(crate) watching: Watching,
    pub(crate) lost: Lost,
    pub(crate) poison: Poison,
    pub(crate) notices: Notices,
    /// The timer of adversarial timing.
    pub(crate) clock: Later<Due>,
    pub(crate) parked: Parked,
}

/// A step that was held back.
pub(crate) enum Due {
    Queue(Arc<Queue>, Arc<Shared>),
    Report(Arc<Queue>, Arc<Shared>),
}

impl Due {
    fn act(self) {
        match self {
            Due::Queue(queue, shared) => queue.start(&shared),
            Due::Report(queue, shared) => queue.report(&shared),
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
            modules: Modules::default(),
            pumps,
            pool,
            watching,
            lost: Lost::default(),
            poison: Poison::default(),
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
        let what = "failed to start the threads of the CPU device";
        // A pump runs blocks too, so the pool has one thread less; and one thread means one.
        let build = |helpers| {
            let name = |index| format!("cuda-cpu-{index}");
            ThreadPoolBuilder::new().num_threads(helpers).thread_name(name).build()
        };
        let pool = (workers > 1).then(|| build(workers - 1)).transpose();
        let pool = pool.map_err(|error| Error::host(what, &error))?;
        let pumps = Pumps::new(if workers > 1 { MAX_PUMPS } else { 1 });
        let pumps = pumps.map_err(|error| Error::host(what, &error))?;
        let memory = Memory::new(info.memory);
        let memory = if options.checks.uninitialised { memory.tracking() } else { memory };
        let watching = Watching::new(options);
        let shared = Arc::new(Shared::new(memory, pumps, pool, watching, notices));
        let (names, streams, leftover, order) = Default::default();
        Ok(Self {
            capabilities: Capabilities::local(info.memory),
            info,
            timing: options.timing,
            shared,
            names,
            streams,
            leftover,
            order,
            loader: HelperThread::new("cuda-cpu-loader"),
            resetter: HelperThread::new("cuda-cpu-reset"),
        })
    }

    fn stream(&self, id: StreamId) -> Result<Arc<Queue>> {
        self.streams.read().get(&id).cloned().ok_or_else(|| unknown("a stream", id.0))
    }

    /// Queues with the number that comes first. A stream that is in neither list has run everything.
    fn after(&self, tickets: &[Ticket]) -> SmallVec<[(Arc<Queue>, u64); 2]> {
        if tickets.is_empty() {
            return SmallVec::new();
        }
        let streams = self.streams.read();
        let retired = |id| self.leftover.lock().iter().find(|queue| queue.id == id).cloned();
        let queue = |ticket: &Ticket| {
            let live = streams.get(&ticket.stream).cloned();
            Some((live.or_else(|| retired(ticket.stream))?, ticket.number))
        };
        tickets.iter().filter_map(queue).collect()
    }

    fn resolve(&self, work: &Asked<'_>, host: &[Arc<HostBlock>]) -> Result<Work> {
        let names = &self.names;
        Ok(match work {
            Asked::Join => Work::Join,
            Asked::Upload { from, to, bytes } => {
                let (from, range) = host_range(*from, *bytes, host)?;
                Work::Upload { from, range, to: names.address(*to, *bytes)? }
            }
            Asked::Download { from, to, bytes } => {
                let (to, range) = host_range(*to, *bytes, host)?;
                Work::Download { from: names.address(*from, *bytes)?, to, range }
            }
            Asked::Copy { from, to, bytes } => {
                let (from, to) = (names.address(*from, *bytes)?, names.address(*to, *bytes)?);
                Work::Copy { from, to, bytes: *bytes }
            }
            Asked::Fill { to, pattern, count } => {
                let bytes = count.saturating_mul(pattern.bytes());
                Work::Fill { to: names.address(*to, bytes)?, pattern: *pattern, count: *count }
            }
            Asked::Timestamp { to } => {
                let address = names.address(*to, 8)?;
                if address % 8 != 0 {
                    let detail = "it is not aligned to eight bytes".into();
                    return Err(Error::OutOfRange {
                        what: "the place of a timestamp".into(),
                        detail,
                    });
                }
                Work::Timestamp { to: address }
            }
            Asked::Launch(launch) => {
                let module = self.shared.modules.find(launch.function.module)?;
                let kernel = names.kernel(launch, module)?;
                kernel.check(&self.shared)?;
                Work::Launch(kernel)
            }
            _ => return Err(Error::unsupported("this kind of work", &self.info.address)),
        })
    }

    /// The error of a submission to a lost device, and the epoch of one to a device that is not.
    fn epoch(&self) -> Result<u64> {
        // Read before the check: should the device be lost and reset meanwhile, the job does not run.
        let epoch = self.shared.lost.epoch();
        let checked = self.shared.lost.check_at(epoch);
        checked.map_err(|cause| lost::refused(&self.info.address, &cause))?;
        Ok(epoch)
    }

    /// Allocates at once where there is room. Where there is none before frees that were sent have run, and where
    /// timing is adversarial, the allocation is a job of the stream.
    fn allocate(&self, id: AllocId, bytes: u64, at: Ticket) -> Result<()> {
        let queue = self.stream(at.stream)?;
        let epoch = self.epoch()?;
        let _order = self.order.lock();
        let memory = &self.shared.memory;
        let make = || -> Result<(u64, bool), OutOfMemory> {
            let address = memory.promise(bytes)?;
            let now = self.timing == Timing::AsFastAsPossible && memory.has_room_for(address);
            if now {
                memory.fulfil(address, bytes)?;
            }
            Ok((address, now))
        };
        let (address, now) = make().map_err(translate::out_of_memory)?;
        self.names.add_allocation(id, address, bytes);
        let number = Some(at.number);
        if now {
            queue.count(at.number, || Job::new(Work::Join, number, epoch), &self.shared);
        } else {
            queue.push(Job::new(Work::Alloc { address, bytes }, number, epoch), &self.shared);
        }
        Ok(())
    }

    fn free(&self, id: AllocId, stream: StreamId, after: &[Ticket]) -> Result<()> {
        let queue = self.stream(stream)?;
        let _order = self.order.lock();
        let (address, bytes) = self.names.remove_allocation(id)?;
        self.shared.memory.announce_free(bytes);
        let free = Job::new(Work::Free { id, address, bytes }, None, self.shared.lost.epoch());
        queue.push(Job { after: self.after(after), ..free }, &self.shared);
        Ok(())
    }

    fn retire(&self, id: StreamId) {
        let mut streams = self.streams.write();
        let removed = streams.remove(&id);
        let mut leftover = self.leftover.lock();
        leftover.retain(|queue| !queue.is_idle());
        leftover.extend(removed.filter(|queue| !queue.is_idle()));
    }

    fn load(&self, id: ModuleId, image: ModuleImage) -> Result<()> {
        self.shared.modules.announce(id);
        let (shared, most) = (self.shared.clone(), self.info.max_threads_per_block);
        let load = move || shared.modules.load(id, &image, &shared.memory, most);
        let started = self.loader.run(load);
        started.map_err(|error| {
            Error::host("failed to start the thread that loads modules for the CPU device", &error)
        })
    }

    fn memory(&self) -> MemoryInfo {
        let usage = self.shared.memory.usage();
        MemoryInfo { used: usage.used, free: usage.total - usage.used, total: usage.total }
    }

    /// Begins a new epoch at once. Answers when every queue has run or skipped the jobs that it had.
    fn reset(&self, answer: Answer) {
        // First: a job that is submitted from here on belongs to the device after the reset.
        let epoch = self.shared.lost.begin_epoch();
        let streams = self.streams.read();
        let mut queues: Vec<_> = streams.values().cloned().collect();
        queues.extend_from_slice(&self.leftover.lock());
        drop(streams);
        let last: Vec<_> = queues.iter().map(|queue| queue.accepted()).collect();
        let shared = self.shared.clone();
        let wait = move || {
            queues.iter().zip(last).for_each(|(queue, last)| queue.wait(last, &shared));
            answer.give(Ok(Reply::Reset { lost: shared.lost.end_epoch(epoch) }));
        };
        // If there is no thread, the answer is dropped, and with that an error.
        let _ = self.resetter.run(wait);
    }
}

// SAFETY: a queue runs its jobs in order, each after its `after` ([`Queue::when_ready`]). `complete` grows after a job
// has run and its failure was reported. Jobs hold the blocks that they name. Blocks come from `HostBlock::heap`.
unsafe impl Backend for CpuBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, submission: &Submission<'_>, host: &[Arc<HostBlock>]) -> Result<()> {
        let Submission { ticket, after, work } = submission;
        let queue = self.stream(ticket.stream)?;
        let epoch = self.epoch()?;
        let job = Job {
            work: self.resolve(work, host)?,
            number: Some(ticket.number),
            epoch,
            after: self.after(after),
            uses: uses_of(work),
            overwrites: work.overwrites(),
        };
        queue.push(job, &self.shared);
        Ok(())
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        match control {
            Control::CreateStream { id, .. } => {
                self.streams.write().insert(id, Queue::new(id, self.timing));
            }
            Control::RetireStream { id } => self.retire(id),
            Control::Allocate { id, bytes, at } => self.allocate(id, bytes, at)?,
            Control::Free { id, stream, after } => self.free(id, stream, &after)?,
            Control::LoadModule { id, image } => self.load(id, image)?,
            Control::UnloadModule { id } => {
                self.shared.modules.unload(id);
                self.shared.parked.wake(&self.shared);
            }
            Control::Want { ticket } => {
                if let Ok(queue) = self.stream(ticket.stream) {
                    queue.want(ticket.number, &self.shared);
                }
            }
            _ => return Err(Error::unsupported("this control", &self.info.address)),
        }
        Ok(())
    }

    fn request(&self, request: Request, answer: Answer) {
        match request {
            Request::Loaded { module } => {
                let most = self.info.max_threads_per_block;
                self.shared.modules.when_loaded(module, answer, most);
            }
            Request::Memory => answer.give(Ok(Reply::Memory(self.memory()))),
            Request::Reach { .. } => answer.give(Ok(Reply::Reached(false))),
            Request::Reset => self.reset(answer),
            _ => answer.give(Err(Error::unsupported("this request", &self.info.address))),
        }
    }

    unsafe fn peek(&self, stream: StreamId) -> Result<u64> {
        Ok(self.stream(stream)?.complete())
    }

    unsafe fn block_until(&self, ticket: Ticket) -> Result<()> {
        self.stream(ticket.stream)?.wait(ticket.number, &self.shared);
        Ok(())
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    /// Jobs hold the blocks that they name until they have run, so nothing else has to.
    fn close(&self, retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {
        drop(retained);
    }
}
