//! The CUDA backend: carries out submissions, controls and requests by driver calls.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cuda_core::{
    internals::sync::HelperThread,
    protocol::{
        AllocId, Answer, Backend, Capabilities, Control, DeviceInfo, Error, Feature, Foreign,
        FunctionId, Graph, GraphCacheInfo, GraphId, HostBlock, LaunchConfig, NoticeSink, PoolId,
        Region, Reply, Request, Result, StreamId, Submission, Ticket, TransferId,
    },
};
use parking_lot::Mutex;

use super::{
    completion::{Completion, Reporter, block_on_report},
    context::{Bound, MemoryPool, Primary},
    objects::{Graphs, Memory, Modules, Pools, host_block},
    streams::{DriverStream, StreamTable},
    teardown::{LastUse, Objects, Retained},
    windows::{HeldFree, Shape},
    work::{self, BackendId, Names, Place, Target, Transfers},
};

/// The maximum number of memory pools beside the default one. The driver has no limit of its own.
const MAX_POOLS: u32 = 1024;

/// The backend of one NVIDIA GPU.
///
/// Copies are asynchronous only from and to blocks of [`Backend::host_block`]. The driver stages other host memory
/// itself, and may block the caller meanwhile.
///
/// A kernel that faults loses the device for this process. The call that meets the fault returns [`Error::Fault`], and
/// so do later queries of work that was in flight. Later submissions return [`Error::DeviceLost`]. Only a new process
/// can use the device again.
///
/// A launch blocks while its module is loading. On a device without memory pools an allocation may wait for the device.
/// No other submission or control blocks by itself. But while the driver loads a module or unpins memory, it waits for
/// running kernels. Launches, copies, and controls that enqueue or create events wait with it, on every thread.
pub struct CudaBackend {
    pub(super) primary: &'static Primary,
    capabilities: Capabilities,
    id: BackendId,
    pub(super) streams: StreamTable,
    pub(super) memory: Memory,
    pools: Pools,
    pub(super) modules: Modules,
    graphs: Graphs,
    pub(super) reporter: Reporter,
    /// Loads modules, builds graphs, and answers requests that may block.
    pub(super) helper: HelperThread,
}

impl CudaBackend {
    pub(super) fn new(
        primary: &'static Primary,
        notices: Arc<dyn NoticeSink>,
        completion: Completion,
    ) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        primary.alive()?;
        primary.backend_opened();
        primary.reclaim.hurry();
        let mut capabilities = Capabilities::local(primary.info.memory);
        capabilities.slow_host_blocks = true;
        capabilities.graphs = true;
        capabilities.loops = primary.condition.is_some();
        capabilities.graph_cache = true;
        capabilities.discards_held = true;
        capabilities.growable = primary.has_mapped_memory;
        capabilities.reuses_memory = true;
        capabilities.pools = if primary.pool.is_some() { MAX_POOLS } else { 0 };
        capabilities.managed_pools = true;
        Ok(Self {
            primary,
            capabilities,
            id: BackendId(NEXT.fetch_add(1, Ordering::Relaxed)),
            streams: StreamTable::new(primary),
            memory: Memory::new(primary),
            pools: Pools::new(primary),
            modules: Modules::new(primary),
            graphs: Graphs::new(primary),
            reporter: Reporter::new(primary, notices, completion),
            helper: HelperThread::new("cuda-loader"),
        })
    }

    pub(super) fn names(&self) -> Names<'_> {
        let Self { primary, memory, modules, graphs, .. } = self;
        Names { primary, memory, modules, graphs }
    }

    /// Starts to build a graph on the helper thread.
    fn create_graph(&self, id: GraphId, graph: &Graph) -> Result<()> {
        let names = self.names();
        let nodes = graph.nodes.iter().map(|recorded| {
            // SAFETY: the client keeps the modules of the graph loaded.
            let node = unsafe { work::node(names, &recorded.work, &graph.host) }?;
            Ok((node, recorded.after.clone()))
        });
        let mut modules = Vec::new();
        graph.launches(&mut |launch| modules.push(launch.function.module));
        let modules = modules.into_iter().map(|module| self.modules.hold(module));
        let (nodes, modules) = (nodes.collect::<Result<_>>()?, modules.collect::<Result<_>>()?);
        self.graphs.create(id, nodes, modules, &self.helper)
    }

    /// Orders later work of a stream after tickets of other streams.
    #[cold]
    pub(super) fn wait_for(
        &self,
        stream: &DriverStream,
        after: &[Ticket],
        bound: &Bound,
    ) -> Result<()> {
        for (producer, number) in self.producers(stream, after) {
            self.flush_to(&producer, number, bound)?;
            producer.wait_for(number, stream, self.primary, bound)?;
        }
        Ok(())
    }

    /// The other streams of these tickets. A stream that was retired has run everything.
    fn producers(
        &self,
        stream: &DriverStream,
        after: &[Ticket],
    ) -> impl Iterator<Item = (Arc<DriverStream>, u64)> {
        let others = after.iter().filter(move |ticket| ticket.stream != stream.id);
        others.filter_map(|ticket| Some((self.streams.find(ticket.stream).ok()?, ticket.number)))
    }

    /// Allocates from a pool in the order of a stream. If there is too little memory, this makes more of it free and
    /// tries once more.
    fn allocate(
        &self,
        pool: Option<&MemoryPool>,
        id: AllocId,
        bytes: u64,
        at: Ticket,
        bound: &Bound,
    ) -> Result<()> {
        let stream = self.streams.find(at.stream)?;
        let allocate = |scarce| self.memory.allocate(id, bytes, pool, scarce, &stream, bound);
        match allocate(false) {
            Err(Error::OutOfMemory { .. }) => {
                self.recover_memory(bound)?;
                allocate(true)?;
            }
            other => other?,
        }
        if !stream.is_windowed() || !stream.window().pass(at.number) {
            stream.set_submitted(at.number);
        }
        Ok(())
    }

    /// Makes memory free that no work uses: enqueues the frees that windows hold, and returns the free memory of all
    /// pools to the system.
    #[cold]
    fn recover_memory(&self, bound: &Bound) -> Result<()> {
        self.flush_all(bound)?;
        // The helper thread may free dropped memory.
        self.primary.reclaim.hurry();
        self.streams.all().iter().for_each(|stream| stream.settle_frees(self.primary, bound));
        self.primary.trim_pools(bound);
        Ok(())
    }

    /// Frees memory in the order of a stream, and after tickets of others. While the stream holds work, or during a
    /// foreign call on it, the free is held.
    fn free(&self, id: AllocId, on: StreamId, after: Vec<Ticket>) -> Result<()> {
        let bound = &self.primary.bind()?;
        let stream = self.streams.find(on)?;
        for (producer, number) in self.producers(&stream, &after) {
            self.flush_to(&producer, number, bound)?;
        }
        let free = HeldFree { id, after };
        let free = if stream.is_windowed() { stream.window().hold_free(free) } else { Some(free) };
        free.map_or(Ok(()), |free| self.free_now(&stream, free, bound))
    }

    /// Frees memory, or holds the free until the foreign call on the stream has ended.
    pub(super) fn free_now(
        &self,
        stream: &DriverStream,
        free: HeldFree,
        bound: &Bound,
    ) -> Result<()> {
        // Record the events before taking `foreign_state`: recording may block, and the completion thread needs that
        // lock.
        for (producer, number) in self.producers(stream, &free.after) {
            if producer.completed() < number {
                producer.event_after(number, self.primary, bound)?;
            }
        }
        let mut foreign = stream.foreign_state();
        let Some(free) = foreign.hold(free) else { return Ok(()) };
        self.wait_for(stream, &free.after, bound)?;
        self.memory.free(free.id, stream, bound)
    }

    fn announce(&self, transfer: TransferId, to: Region, bytes: u64) -> Result<()> {
        let address = self.memory.locate(to, bytes)?;
        let target = Target { backend: self.id, ordinal: self.primary.ordinal, address, bytes };
        Transfers::get().announce(transfer, target)
    }

    /// Takes memory for reserved addresses, on the helper thread.
    fn commit(&self, id: AllocId, bytes: u64, answer: Answer) {
        let mapping = match self.primary.alive().and_then(|()| self.memory.mapping(id)) {
            Ok(mapping) => mapping,
            Err(error) => return answer.give(Err(error)),
        };
        self.answer_later(answer, move |_, bound| {
            mapping.commit(bytes, bound).map(|()| Reply::Committed)
        });
    }

    /// Returns free memory of a pool to the system, on the helper thread.
    fn trim(&self, pool: PoolId, keep: u64, answer: Answer) {
        let flushed = self.primary.bind().and_then(|bound| self.flush_all(&bound));
        let (pool, streams) = match flushed.and_then(|()| self.pools.find(pool)) {
            Ok(pool) => (pool, self.streams.all()),
            Err(error) => return answer.give(Err(error)),
        };
        self.answer_later(answer, move |primary, bound| {
            streams.iter().for_each(|stream| stream.settle_frees(primary, bound));
            pool.trim(primary.api, keep, bound);
            Pools::memory(primary, &pool, bound).map(Reply::Pool)
        });
    }

    /// Answers a question on occupancy.
    fn answer_occupancy(&self, id: FunctionId, config: LaunchConfig, answer: Answer) {
        // The client asks about modules that are loaded, so holding the slot does not wait.
        let held = self.modules.hold(id.module);
        self.answer_later(answer, move |primary, bound| {
            let slot = held?;
            let module = slot.wait()?;
            let function = module.function_at(id)?;
            work::occupancy(primary, function, &config, bound).map(Reply::Occupancy)
        });
    }

    /// Answers on the helper thread, with the context bound.
    fn answer_later(
        &self,
        answer: Answer,
        reply: impl FnOnce(&'static Primary, &Bound) -> Result<Reply> + Send + 'static,
    ) {
        let primary = self.primary;
        // A helper that cannot be started drops its task, but the answer has to be given.
        let answer = Arc::new(Mutex::new(Some(answer)));
        let give = move |result| {
            let answer = answer.lock().take();
            if let Some(answer) = answer {
                answer.give(result);
            }
        };
        let give_later = give.clone();
        let task = move || {
            let bound = primary.alive().and_then(|()| primary.bind_own_thread());
            give_later(bound.and_then(|bound| reply(primary, &bound)));
        };
        if let Err(error) = self.helper.run(task) {
            give(Err(Error::host("failed to start the helper thread of the device", &error)));
        }
    }
}

// SAFETY: streams of the driver run their work in order, and `wait_for` orders them after each other. The completion
// thread reports a number only after the device has passed it and the stream's status was read (rule 9). `accepted` is
// the same number, and the device reads no host bytes of an upload that it has passed (rule 7). A submission does not
// fail by itself: a fault loses the device. Host blocks have the requested length.
unsafe impl Backend for CudaBackend {
    fn info(&self) -> &DeviceInfo {
        &self.primary.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    #[inline]
    unsafe fn submit(&self, submission: &Submission<'_>, host: &[Arc<HostBlock>]) -> Result<()> {
        self.primary.alive()?;
        let bound = &self.primary.bind()?;
        let Ticket { stream, number } = submission.ticket;
        // SAFETY: the caller retires no stream that the submission names until this returns.
        let stream = unsafe { self.streams.get(stream) }?;
        if stream.is_windowed() {
            self.end_window(stream, bound)?;
        }
        if !submission.after.is_empty() {
            self.wait_for(stream, submission.after, bound)?;
        }
        let place = Place { names: self.names(), stream };
        // SAFETY: until this returns, no thread retires the stream, drops the graph or unloads the module that the
        // submission names. The blocks in `host` stay valid until the work is accepted or complete, and the kernel
        // stays inside the memory of its relocations.
        unsafe { work::enqueue(place, submission.work, host, bound) }?;
        stream.set_submitted(number);
        Ok(())
    }

    #[inline]
    unsafe fn submit_deferrable(
        &self,
        submission: &Submission<'_>,
        host: &[Arc<HostBlock>],
    ) -> Result<()> {
        match Shape::of(submission.work) {
            // SAFETY: the caller keeps the rules of `submit_deferrable`: no module of a launch is unloaded before the
            // ticket is complete.
            Some(shape) if submission.after.is_empty() => unsafe {
                self.submit_to_window(shape, submission, host)
            },
            // SAFETY: the caller keeps the rules of `submit`, which are a part of those of `submit_deferrable`.
            _ => unsafe { Backend::submit(self, submission, host) },
        }
    }

    #[inline]
    unsafe fn flush(&self, stream: StreamId) -> Result<()> {
        // SAFETY: the caller does not retire the stream until this returns.
        let stream = unsafe { self.streams.get(stream) }?;
        if stream.is_windowed() { self.end_window(stream, &self.primary.bind()?) } else { Ok(()) }
    }

    fn report(&self, ticket: Ticket) -> Result<()> {
        self.primary.intact()?;
        let stream = self.streams.find(ticket.stream)?;
        if stream.is_windowed() && stream.window().hold_report(ticket.number) {
            return Ok(());
        }
        self.reporter.want(&stream, ticket.number, &self.primary.bind()?)
    }

    fn graph_cache(&self) -> GraphCacheInfo {
        self.streams.graph_cache()
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        match control {
            Control::Want { ticket } => {
                // This asks about work in flight: if the device is lost, the fault itself is the answer.
                self.primary.intact()?;
                let stream = self.streams.find(ticket.stream)?;
                let bound = &self.primary.bind()?;
                self.flush_to(&stream, ticket.number, bound)?;
                self.reporter.want(&stream, ticket.number, bound)
            }
            Control::CreateStream { id, priority } => {
                self.primary.alive()?;
                self.streams.create(id, priority, &self.primary.bind()?)
            }
            Control::RetireStream { id } => self.streams.retire(id),
            Control::Allocate { id, bytes, at } => {
                self.primary.alive()?;
                let pool = self.primary.pool.as_ref();
                self.allocate(pool, id, bytes, at, &self.primary.bind()?)
            }
            Control::AllocateIn { pool, id, bytes, at } => {
                self.primary.alive()?;
                let pool = self.pools.find(pool)?;
                self.allocate(Some(&pool), id, bytes, at, &self.primary.bind()?)
            }
            Control::Reserve { id, bytes } => {
                self.primary.alive()?;
                self.memory.reserve(id, bytes, &self.primary.bind()?)
            }
            Control::CreatePool { id, spec } => {
                self.primary.alive()?;
                self.pools.create(id, spec, &self.primary.bind()?)
            }
            Control::ChangePool { id, change } => {
                self.primary.alive()?;
                self.pools.change(id, change, &self.primary.bind()?)
            }
            Control::DropPool { id } => self.pools.remove(id),
            Control::Free { id, stream, after } => {
                self.primary.alive()?;
                self.free(id, stream, after)
            }
            Control::LoadModule { id, image } => {
                self.primary.alive()?;
                self.modules.load(id, image, &self.helper)
            }
            Control::NameVariable { id, module, name, bytes } => {
                self.primary.alive()?;
                let address = self.modules.variable(module, &name, bytes)?;
                self.memory.name_variable(id, module, address, bytes)
            }
            Control::UnloadModule { id } => {
                self.forget_windows_of(id);
                self.memory.forget_variables(id);
                self.modules.unload(id)
            }
            Control::CreateGraph { id, graph } => {
                self.primary.alive()?;
                self.create_graph(id, &graph)
            }
            Control::DropGraph { id } => self.graphs.remove(id),
            // Held work is copies, fills and launches. A download is never held.
            Control::Cancel { stream, first, last, .. } => {
                self.cancel_held(stream, first, last);
                Ok(())
            }
            Control::Receive { transfer, to, bytes } => {
                self.primary.alive()?;
                self.announce(transfer, to, bytes)
            }
            _ => Err(Error::unsupported(Feature::Control, &self.primary.info.address)),
        }
    }

    fn request(&self, request: Request, answer: Answer) {
        match request {
            Request::Loaded { module } => self.modules.answer_loaded(module, answer),
            Request::GraphReady { graph } => self.graphs.answer_ready(graph, answer),
            Request::Occupancy { function, config } => {
                self.answer_occupancy(function, config, answer)
            }
            Request::Memory => {
                let used = self.memory.used();
                self.answer_later(answer, move |primary, bound| {
                    Memory::info(primary, used, bound).map(Reply::Memory)
                });
            }
            Request::Commit { id, bytes } => self.commit(id, bytes, answer),
            Request::PoolMemory { pool } => match self.pools.find(pool) {
                Err(error) => answer.give(Err(error)),
                Ok(pool) => self.answer_later(answer, move |primary, bound| {
                    Pools::memory(primary, &pool, bound).map(Reply::Pool)
                }),
            },
            Request::TrimPool { pool, keep } => self.trim(pool, keep, answer),
            Request::Reach { address } => self.answer_later(answer, move |primary, bound| {
                work::reach(primary, &address, bound).map(Reply::Reached)
            }),
            // Also on a lost device: the message says what to do instead.
            Request::Reset => {
                answer.give(Err(Error::unsupported(Feature::Reset, &self.primary.info.address)));
            }
            _ => answer.give(Err(Error::unsupported(Feature::Request, &self.primary.info.address))),
        }
    }

    #[inline]
    unsafe fn peek(&self, stream: StreamId) -> Result<u64> {
        self.primary.intact()?;
        // SAFETY: the caller does not retire the stream until this returns.
        let stream = unsafe { self.streams.get(stream) }?;
        if stream.is_windowed() {
            self.flush_held(stream, &self.primary.bind()?)?;
        }
        // Read before the query: work that is submitted in between may not have run.
        let submitted = stream.submitted();
        let shown = stream.completed();
        if shown >= submitted {
            stream.set_idle();
            return Ok(shown);
        }
        let idle = stream.is_idle(self.primary, &self.primary.bind()?)?;
        if idle {
            stream.set_idle();
        }
        Ok(if idle { submitted } else { stream.completed() })
    }

    #[inline]
    unsafe fn block_until(&self, ticket: Ticket) -> Result<()> {
        self.primary.intact()?;
        let (primary, number) = (self.primary, ticket.number);
        // SAFETY: the caller does not retire the stream until this returns.
        let stream = unsafe { self.streams.get(ticket.stream) }?;
        if stream.completed() >= number {
            return Ok(());
        }
        let bound = &primary.bind()?;
        self.flush_to(stream, number, bound)?;
        stream.check_submitted(number)?;
        if stream.submitted() == number {
            stream.set_idle();
            if stream.is_soon_idle(number, primary, bound)? {
                return Ok(());
            }
        } else if stream.reports.enqueued() >= number {
            // Other threads have submitted more. A checkpoint that was enqueued before that work does not wait for it.
            // This thread queries the event itself, because it may be the completion thread, in a waker.
            let event = stream.reports.event_for(number);
            let passed = || {
                if let Some(event) = event
                    && stream.has_passed(event, primary)?
                {
                    stream.passed.raise(number);
                }
                Ok(stream.completed() >= number)
            };
            return block_on_report(passed, || stream.is_idle(primary, bound).map(drop));
        }
        // Synchronize an event: synchronizing the stream would end a capture that another thread begins.
        let event = stream.event_after(number, primary, bound)?;
        // SAFETY: the stream is held and owns the event (rule 5).
        unsafe { primary.api.event_synchronize(event) }
            .map_err(|failed| primary.state_error(failed))
    }

    /// Allocates a block of pinned memory. May block: pinning takes about a millisecond per 4 MiB.
    fn host_block(&self, bytes: usize) -> Result<HostBlock> {
        self.primary.alive()?;
        self.primary.reclaim.hurry();
        host_block(self.primary, bytes, &self.primary.bind()?)
    }

    fn enter(&self) -> Option<Box<dyn Any>> {
        let bound = self.primary.bind().ok()?;
        Some(Box::new(bound))
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        Some(self)
    }

    fn close(&self, retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {
        // Passes work that the client has not flushed to the driver. An error can only mean that the device is lost.
        _ = self.primary.bind().and_then(|bound| self.flush_all(&bound));
        let last_use = |(ticket, resource): (Ticket, _)| {
            let stream = self.streams.find(ticket.stream).ok();
            LastUse { stream, number: ticket.number, resource }
        };
        let uses: Vec<_> = retained.into_iter().map(last_use).collect();
        if !uses.is_empty() {
            self.primary.reclaim.put(Box::new(Retained(uses)));
        }
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        Transfers::get().forget(self.id);
        let (memory, mappings) = self.memory.take();
        let objects = Objects {
            streams: self.streams.take(),
            memory,
            mappings,
            modules: self.modules.take(),
            graphs: self.graphs.take(),
        };
        self.primary.reclaim.put(Box::new(objects));
        self.pools.remove_all();
    }
}

impl std::fmt::Debug for CudaBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaBackend").field("info", &self.primary.info).finish_non_exhaustive()
    }
}
