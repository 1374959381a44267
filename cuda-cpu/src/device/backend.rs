//! The backend of the CPU device: takes submissions, controls and requests, and sends notices.

use std::any::Any;
use std::sync::Arc;

use cuda_core::internals::sync::HelperThread;
use cuda_core::order::uses_of;
use cuda_core::protocol::{
    AllocId, Answer, CONDITION_BYTES, Capabilities, Control, Feature, Foreign, Graph, GraphId,
    HostBlock, Limit, ModuleId, ModuleImage, PoolId, Quantity, Reply, Request, StreamId,
    Submission, Work as Asked,
};
use cuda_core::{Backend, DeviceInfo, Error, MemoryInfo, NoticeSink, Result, Ticket};
use parking_lot::Mutex;
use rayon::ThreadPoolBuilder;
use smallvec::SmallVec;

use super::items::graph::{Graph as ResolvedGraph, Graphs, Node};
use super::items::resolve::{Allocation, Names, host_range};
use super::items::work::{Cancelled, QueueItem, Work};
use super::pools::Pools;
use super::queues::Timing;
use super::queues::pumps::Pumps;
use super::queues::queue::{After, Queue, Shared};
use super::state::{DeviceState, errors, lost};
use crate::{CpuOptions, Memory, OutOfMemory};

/// The maximum number of memory pools beside the default one.
const MAX_POOLS: u32 = 1024;

/// The maximum number of streams that run at the same time. Other streams wait for a thread.
const MAX_PUMPS: usize = 16;

/// The CPU device. [`CpuProvider`](crate::CpuProvider) opens it.
pub struct CpuBackend {
    info: DeviceInfo,
    capabilities: Capabilities,
    timing: Timing,
    shared: Arc<Shared>,
    names: Names,
    graphs: Graphs,
    /// Held while an allocation or a free is accounted for and queued. Otherwise a thread could queue an allocation in
    /// front of the free that it waits for, or give an id to two allocations.
    order: Mutex<Pools>,
    /// Runs the growth of allocations. It is not a stream of the client.
    growth: Arc<Queue>,
    /// Loads modules.
    loader: HelperThread,
    /// Waits for the end of resets. The loader cannot do this: a reset can wait for a kernel that needs a module load
    /// to end.
    resetter: HelperThread,
}

impl CpuBackend {
    pub(crate) fn new(
        info: DeviceInfo,
        workers: usize,
        options: &CpuOptions,
        notices: Arc<dyn NoticeSink>,
    ) -> Result<Self> {
        let what = "failed to start the threads of the CPU device";
        // A pump runs blocks too, so the pool has one thread fewer. With one worker there is no pool.
        let build = |helpers| {
            let name = |index| format!("cuda-cpu-{index}");
            ThreadPoolBuilder::new().num_threads(helpers).thread_name(name).build()
        };
        let pool = (workers > 1).then(|| build(workers - 1)).transpose();
        let pool = pool.map_err(|error| Error::host(what, &error))?;
        let pumps = Pumps::new(if workers > 1 { MAX_PUMPS } else { 1 });
        let pumps = pumps.map_err(|error| Error::host(what, &error))?;
        let memory = Memory::new(info.memory);
        let memory = if options.checks.uninitialized { memory.tracking() } else { memory };
        let launch_options = options.for_launches(info.multiprocessors);
        let device = DeviceState::new(memory, pool, launch_options, notices);
        let shared = Arc::new(Shared::new(device, pumps));
        let (names, graphs, order) = Default::default();
        let mut capabilities = Capabilities::local(info.memory);
        capabilities.graphs = true;
        capabilities.loops = true;
        capabilities.pools = MAX_POOLS;
        capabilities.growable = true;
        capabilities.cancels = true;
        Ok(Self {
            capabilities,
            info,
            timing: options.timing,
            shared,
            names,
            graphs,
            order,
            growth: Queue::new(StreamId(0), Timing::AsFastAsPossible),
            loader: HelperThread::new("cuda-cpu-loader"),
            resetter: HelperThread::new("cuda-cpu-reset"),
        })
    }

    fn stream(&self, id: StreamId) -> Result<Arc<Queue>> {
        self.shared
            .streams
            .read()
            .get(&id)
            .cloned()
            .ok_or_else(|| Error::no_such_object("stream", id.0))
    }

    /// Returns the queues to wait for, each with a number. A stream that is in neither list has run all items.
    fn after(&self, tickets: &[Ticket]) -> After {
        if tickets.is_empty() {
            return After::new();
        }
        let streams = self.shared.streams.read();
        let retired = |id| self.shared.leftover.lock().iter().find(|queue| queue.id == id).cloned();
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
                Limit::MultipleOf(8).check("a timestamp", Quantity::Address, address)?;
                Work::Timestamp { to: address }
            }
            Asked::Launch(launch) => {
                let module = self.shared.device.modules.find(launch.function.module)?;
                let lists_operands = self.shared.device.launch_options.checks.read_only;
                let kernel = names.kernel(launch, module, lists_operands)?;
                kernel.check(&self.shared.device)?;
                Work::Launch(kernel)
            }
            Asked::Graph(launch) => {
                let resolve = |work: &Asked<'_>| self.resolve_node(work, host);
                Work::Graph(self.graphs.launched(launch.graph, &launch.changes, resolve)?)
            }
            _ => return Err(Error::unsupported(Feature::Work, &self.info.address)),
        })
    }

    /// Resolves the work of a graph's node.
    fn resolve_node(&self, work: &Asked<'_>, host: &[Arc<HostBlock>]) -> Result<Work> {
        match work {
            Asked::Download { .. } | Asked::Send { .. } | Asked::Graph(_) => {
                Err(Error::unsupported(Feature::WorkInGraph, &self.info.address))
            }
            work => self.resolve(work, host),
        }
    }

    /// Resolves the nodes of a graph, with the bodies of its loops.
    fn resolve_graph(&self, graph: &Graph) -> Result<Arc<ResolvedGraph>> {
        let nodes = graph.nodes.iter().map(|node| {
            let work = match &node.work {
                Asked::Repeat(repeat) => Work::Repeat {
                    condition: self.names.address(repeat.condition, CONDITION_BYTES)?,
                    body: self.resolve_graph(&repeat.body)?,
                },
                work => self.resolve_node(work, &graph.host)?,
            };
            Ok(Node::new(work, &node.work))
        });
        Ok(Arc::new(ResolvedGraph::new(nodes.collect::<Result<_>>()?)))
    }

    fn create_graph(&self, id: GraphId, graph: &Graph) -> Result<()> {
        self.graphs.insert(id, self.resolve_graph(graph)?);
        Ok(())
    }

    /// Returns the epoch of a new submission.
    ///
    /// # Errors
    /// If the device is lost.
    fn epoch(&self) -> Result<u64> {
        // Read the epoch before the check: if the device is lost and reset in between, the item does not run.
        let epoch = self.shared.device.lost.epoch();
        let checked = self.shared.device.lost.check_at(epoch);
        checked.map_err(|cause| lost::refused(&self.info.address, &cause))?;
        Ok(epoch)
    }

    /// Allocates immediately if memory is available. If it becomes available only after submitted frees, or if timing
    /// is adversarial, the allocation becomes an item of the stream.
    fn allocate(&self, pool: PoolId, id: AllocId, bytes: u64, at: Ticket) -> Result<()> {
        let queue = self.stream(at.stream)?;
        let epoch = self.epoch()?;
        let mut pools = self.order.lock();
        self.names.check_unused(id)?;
        let memory = &self.shared.device.memory;
        self.make_room(&mut pools, pool, bytes)?;
        let make = || -> Result<(u64, bool), OutOfMemory> {
            let may_be_now = self.timing == Timing::AsFastAsPossible;
            let now = if may_be_now { memory.alloc_if_free(bytes)? } else { None };
            now.map_or_else(|| Ok((memory.promise(bytes)?, false)), |address| Ok((address, true)))
        };
        let (address, now) = make().map_err(errors::out_of_memory)?;
        pools.take(pool, bytes);
        self.names.add_allocation(id, Allocation { address, bytes, pool, module: None });
        let number = Some(at.number);
        if now {
            let item = || QueueItem::new(Work::Allocated, number, epoch);
            queue.complete_immediately(at.number, item, &self.shared);
        } else {
            let item = QueueItem::new(Work::Alloc { address, bytes }, number, epoch);
            queue.push(item, After::new(), &self.shared);
        }
        Ok(())
    }

    /// Reserves addresses. Memory is only taken by [`commit`](Self::commit).
    fn reserve(&self, id: AllocId, bytes: u64) -> Result<()> {
        self.epoch()?;
        let _order = self.order.lock();
        self.names.check_unused(id)?;
        let address = self.shared.device.memory.reserve(bytes).map_err(errors::out_of_memory)?;
        let pool = PoolId::DEFAULT;
        self.names.add_allocation(id, Allocation { address, bytes: 0, pool, module: None });
        Ok(())
    }

    /// Lets a reserved allocation use `bytes` bytes, as soon as submitted frees have made room.
    fn commit(&self, id: AllocId, bytes: u64, answer: Answer) {
        let promise = || {
            let epoch = self.epoch()?;
            let mut pools = self.order.lock();
            let before = self.names.find(id)?;
            let more = bytes.saturating_sub(before.bytes);
            self.make_room(&mut pools, PoolId::DEFAULT, more)?;
            let promise = self.shared.device.memory.promise_growth(before.address, bytes, more);
            let promise = promise.map_err(errors::out_of_memory)?;
            pools.take(PoolId::DEFAULT, more);
            self.names.add_allocation(id, Allocation { bytes: before.bytes + more, ..before });
            Ok((promise, before.address, epoch))
        };
        match promise() {
            Ok((promise, address, epoch)) => {
                let grow =
                    Work::Grow { promise, address, bytes, answer: Box::new(Mutex::new(answer)) };
                let item = QueueItem::new(grow, None, epoch);
                self.growth.push(item, After::new(), &self.shared);
            }
            Err(error) => answer.give(Err(error)),
        }
    }

    /// Makes pools return the bytes that they keep, if an allocation does not fit beside them.
    fn make_room(&self, pools: &mut Pools, pool: PoolId, bytes: u64) -> Result<()> {
        let beside = pools.idle_beside(pool, bytes)?;
        if beside > 0 && !self.shared.device.memory.has_bytes(beside.saturating_add(bytes)) {
            pools.trim_all();
        }
        Ok(())
    }

    fn free(&self, id: AllocId, stream: StreamId, after: &[Ticket]) -> Result<()> {
        let queue = self.stream(stream)?;
        let mut pools = self.order.lock();
        let Allocation { address, bytes, pool, .. } = self.names.remove_allocation(id)?;
        pools.give(pool, bytes);
        self.shared.device.memory.announce_free(bytes);
        let free = QueueItem::new(
            Work::Free { id, address, bytes },
            None,
            self.shared.device.lost.epoch(),
        );
        queue.push(free, self.after(after), &self.shared);
        Ok(())
    }

    fn name_variable(&self, id: AllocId, module: ModuleId, name: &str, bytes: u64) -> Result<()> {
        let loaded = self.shared.device.modules.find_loaded(module)?;
        let found = loaded.program().variable(name).filter(|(_, size)| *size >= bytes);
        let (address, _) = found.ok_or_else(|| Error::NoSuchVariable {
            name: name.to_owned(),
            available: format!("none of this name with {bytes} bytes on the device"),
        })?;
        let pool = PoolId::DEFAULT;
        let _order = self.order.lock();
        self.names.check_unused(id)?;
        self.names.add_allocation(id, Allocation { address, bytes, pool, module: Some(module) });
        Ok(())
    }

    fn retire(&self, id: StreamId) {
        let mut streams = self.shared.streams.write();
        let removed = streams.remove(&id);
        let mut leftover = self.shared.leftover.lock();
        leftover.retain(|queue| !queue.is_idle());
        leftover.extend(removed.filter(|queue| !queue.is_idle()));
    }

    fn load(&self, id: ModuleId, image: ModuleImage) -> Result<()> {
        self.shared.device.modules.announce(id);
        let (shared, most) = (self.shared.clone(), self.info.max_threads_per_block);
        let load = move || shared.device.modules.load(id, &image, &shared.device.memory, most);
        let started = self.loader.run(load);
        started.map_err(|error| {
            // No thread ends the load, so nothing may wait for it.
            self.shared.device.modules.unload(id);
            Error::host("failed to start the thread that loads modules for the CPU device", &error)
        })
    }

    fn memory(&self) -> MemoryInfo {
        let idle = self.order.lock().idle();
        let usage = self.shared.device.memory.usage();
        let free = (usage.total - usage.used).saturating_sub(idle);
        MemoryInfo { used: usage.used, free, total: usage.total }
    }

    /// Starts a new epoch immediately. Answers when every queue has run or skipped its earlier items.
    fn reset(&self, answer: Answer) {
        // Start the epoch first, so that later submissions run after the reset.
        let epoch = self.shared.device.lost.begin_epoch();
        let streams = self.shared.streams.read();
        let mut queues: Vec<_> = streams.values().cloned().collect();
        queues.extend_from_slice(&self.shared.leftover.lock());
        drop(streams);
        let last: Vec<_> = queues.iter().map(|queue| queue.accepted()).collect();
        let shared = self.shared.clone();
        let wait = move || {
            queues.iter().zip(last).for_each(|(queue, last)| queue.wait(last, &shared));
            answer.give(Ok(Reply::Reset { lost: shared.device.lost.end_epoch(epoch) }));
        };
        // If the thread cannot be started, the answer is dropped, which replies with an error.
        let _ = self.resetter.run(wait);
    }
}

// SAFETY: a queue runs its items in order, each after its `after` ([`Queue::when_ready`]). `complete` grows after an
// item has run and its failure was reported. It is written and read under the queue's lock, so the bytes of downloads
// are visible. An upload is accepted when it is complete. Items hold the blocks that they name. Blocks come from
// `HostBlock::heap`.
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
        let epoch = match work {
            // A lost device skips it in its place: later frees rely on the order.
            Asked::Join => self.shared.device.lost.epoch(),
            _ => self.epoch()?,
        };
        let item = QueueItem {
            work: self.resolve(work, host)?,
            number: Some(ticket.number),
            epoch,
            uses: if matches!(work, Asked::Graph(_)) { SmallVec::new() } else { uses_of(work) },
            overwrites: work.overwrites(),
            cancelled: Cancelled::No,
        };
        queue.push(item, self.after(after), &self.shared);
        Ok(())
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        match control {
            Control::CreateStream { id, .. } => {
                self.shared.streams.write().insert(id, Queue::new(id, self.timing));
            }
            Control::RetireStream { id } => self.retire(id),
            Control::Allocate { id, bytes, at } => {
                self.allocate(PoolId::DEFAULT, id, bytes, at)?;
            }
            Control::AllocateIn { pool, id, bytes, at } => self.allocate(pool, id, bytes, at)?,
            Control::Reserve { id, bytes } => self.reserve(id, bytes)?,
            Control::CreatePool { id, spec } => self.order.lock().create(id, spec),
            Control::ChangePool { id, change } => self.order.lock().change(id, change)?,
            Control::DropPool { id } => self.order.lock().remove(id),
            Control::Free { id, stream, after } => self.free(id, stream, &after)?,
            Control::LoadModule { id, image } => self.load(id, image)?,
            Control::NameVariable { id, module, name, bytes } => {
                self.name_variable(id, module, &name, bytes)?;
            }
            Control::UnloadModule { id } => {
                let variables = self.names.forget_variables(id);
                variables
                    .into_iter()
                    .for_each(|variable| self.shared.device.poison.forget(variable));
                self.shared.device.modules.unload(id);
                self.shared.memory_freed();
            }
            Control::CreateGraph { id, graph } => self.create_graph(id, &graph)?,
            Control::DropGraph { id } => {
                self.graphs.remove(id)?;
                // The graph may have held the last use of an unloaded module.
                self.shared.memory_freed();
            }
            Control::Want { ticket } => {
                if let Ok(queue) = self.stream(ticket.stream) {
                    queue.want(ticket.number, &self.shared);
                }
            }
            Control::Cancel { stream, first, last, downloads } => {
                if let Ok(queue) = self.stream(stream) {
                    queue.cancel(first..=last, downloads, &self.shared);
                }
            }
            _ => return Err(Error::unsupported(Feature::Control, &self.info.address)),
        }
        Ok(())
    }

    fn request(&self, request: Request, answer: Answer) {
        match request {
            Request::Loaded { module } => {
                let most = self.info.max_threads_per_block;
                self.shared.device.modules.when_loaded(module, answer, most);
            }
            Request::GraphReady { graph } => self.graphs.answer_ready(graph, answer),
            Request::Occupancy { function, config } => {
                let module = self.shared.device.modules.find_loaded(function.module);
                let reply =
                    module.and_then(|module| module.occupancy(function.entry, &config, &self.info));
                answer.give(reply.map(Reply::Occupancy));
            }
            Request::Memory => answer.give(Ok(Reply::Memory(self.memory()))),
            Request::Commit { id, bytes } => self.commit(id, bytes, answer),
            Request::PoolMemory { pool } => {
                let memory = self.order.lock().memory(pool);
                answer.give(memory.map(Reply::Pool));
            }
            Request::TrimPool { pool, keep } => {
                let memory = self.order.lock().trim(pool, keep);
                answer.give(memory.map(Reply::Pool));
            }
            Request::Reach { .. } => answer.give(Ok(Reply::Reached(false))),
            Request::Reset => self.reset(answer),
            _ => answer.give(Err(Error::unsupported(Feature::Request, &self.info.address))),
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

    /// Drops the retained resources. Items hold the blocks that they name until they have run.
    fn close(&self, retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {
        drop(retained);
    }
}
