//! `Recording`: recorded work, its replays, its memory slots, and its nodes as data, for people and tools.
//!
//! A plan is a recording that never runs, for a look at the work of an operation. Memory that is allocated on a stream
//! of a plan is *planned*: it has an id and a size, and the device has none of it. Submissions of other streams that
//! name planned memory are errors.

use std::{any::Any, borrow::Cow, sync::Arc};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    handle::{
        device::Device,
        recording::{
            access_set::AccessSet,
            bindings::Bindings,
            instance::{Executable, Instance, LaunchResources, MAX_INSTANCES, Retired},
            temporary,
        },
        stream::{
            Allocation, CapturePool, Keep, Operand, Ordered, Recorder, Stream, UploadSource,
            trace_replayed,
        },
    },
    order::{
        Retain,
        plan::{Node, access_set, allocations_with_gaps},
        timeline::Until,
    },
    protocol::{
        Access, AllocId, Error, FunctionId, GraphId, GraphLaunch, HostBlock, Limit, MemoryConflict,
        Misuse, Name, NodeChange, Quantity, Result, Ticket, Use, Work,
    },
    runtime::Pending,
    sync::Mutex,
};

/// The use of memory that errors name.
const SLOT: &str = "a slot of a graph";

/// Recorded work, which can be replayed on every stream of its device.
///
/// It keeps the memory, the modules and the uploaded bytes that it names. A replay writes this memory again. It is
/// ordered with every other use of the same memory, on every stream and through every handle.
pub struct Recording {
    pub(super) device: Device,
    /// In an order in which they can run.
    pub(super) nodes: Vec<Node>,
    /// The names of the kernels among the nodes.
    pub(super) kernels: FxHashMap<FunctionId, Name>,
    pub(super) accesses: Vec<Use>,
    /// Dropped before `kept`: executables name modules.
    pub(super) state: Mutex<State>,
    pub(super) kept: Arc<RecordedResources>,
    /// Memory of the recording that no handle names.
    temporary: Vec<AllocId>,
    /// Everything that the nodes name. Some uses have no bytes, so the access set leaves them out.
    pub(super) named: Vec<Arc<Allocation>>,
}

/// The parts that replays change.
pub(super) struct State {
    pub(super) bindings: Bindings,
    /// At least one.
    pub(super) instances: SmallVec<[Instance; 1]>,
}

/// The resources of a recording that its launches use. They do not hold the device, because a stream may retain them.
pub(super) struct RecordedResources {
    /// For each node, the source of its upload, if it is one.
    pub(super) uploads: Vec<Option<UploadSource>>,
    _others: Vec<Arc<dyn Any + Send + Sync>>,
}

/// The host blocks of a launch.
type Blocks = SmallVec<[Arc<HostBlock>; 1]>;

/// The resources of the launches of one executable, which is dropped before the memory that it names.
struct Resources {
    _executable: Arc<Executable>,
    _kept: Arc<RecordedResources>,
    _slots: Vec<UploadSource>,
}

impl Retain for Resources {}

impl Recording {
    /// Returns a stream of a new recording. Work that is submitted to the stream is recorded and does not run. Other
    /// streams of the same recording come from [`lend_branch`](crate::internals::lend_branch). The temporary buffers
    /// take memory of `pool` when the recording ends.
    ///
    /// Memory that is allocated on the stream is allocated at once, and not again by a replay. A wait for the device is
    /// [`Error::NeedsHostData`]. Events of the stream order nothing outside the recording, and events of other streams
    /// order nothing inside it.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the pool is sealed, or an error of the backend.
    pub fn start(device: &Device, pool: Option<&Arc<CapturePool>>) -> Result<Stream> {
        pool.map_or(Ok(()), |pool| pool.check())?;
        let recorder = Arc::new(Recorder::new(pool.cloned()));
        Ok(Stream::recorded(device.clone(), Some(device.lend_stream(0)?), recorder))
    }

    /// Ends the recording of `stream`, for all its streams. The recording of a stream of a plan, whose memory does not
    /// exist on the device, serves only as the body of a loop in that plan.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this is not a stream of a recording, or if the recording has ended.
    pub fn end(stream: &Stream) -> Result<Self> {
        let Some(recorder) = stream.recorder() else {
            return Err(Error::Misuse(Misuse::NotRecording));
        };
        let mut recorded = recorder.end()?;
        let mut nodes = recorded.plan.into_nodes();
        let mut memory: Vec<_> = recorded.memory.into_values().collect();
        memory.sort_unstable_by_key(|allocation| allocation.id().0);
        let mut temporary = temporary::temporary(&memory, &recorded.allocated);
        if let Some(pool) = &recorded.pool {
            temporary::share(pool, &mut nodes, &mut memory, &mut temporary);
        }
        let accesses = access_set(&nodes);
        let uploads = (0..nodes.len() as u32).map(|node| recorded.uploads.remove(&node)).collect();
        let set = AccessSet::new(accesses.clone(), &memory, &allocations_with_gaps(&nodes))?;
        let mut others: Vec<_> = recorded.modules.into_values().collect();
        others.extend(recorded.others);
        let kept = Arc::new(RecordedResources { uploads, _others: others });
        let bindings = Bindings::new(&kept.uploads);
        let instances = SmallVec::from_buf([Instance::first(set)]);
        let state = Mutex::new(State { bindings, instances });
        let (device, kernels) = (stream.device().clone(), recorded.kernels);
        Ok(Recording { device, nodes, kernels, accesses, state, kept, temporary, named: memory })
    }

    /// Returns the device on which the recording replays.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the number of nodes, including those that only join branches.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether the recording has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the memory that the recorded work uses. Each allocation has one entry, with its strongest access.
    pub fn accesses(&self) -> &[Use] {
        &self.accesses
    }

    /// The operands of the recorded work: one for each allocation, also for those of which no byte is used.
    pub(super) fn operands(&self) -> SmallVec<[Operand<'_>; 8]> {
        let operand = |memory: &Arc<Allocation>| {
            let used = self.accesses.binary_search_by_key(&memory.id(), |used| used.base);
            let used = used.map(|at| &self.accesses[at]);
            used.map_or((0..0, Access::Read), |used| (used.range.clone(), used.access))
        };
        let all = self.named.iter().map(|memory| (memory, operand(memory)));
        all.map(|(memory, (range, access))| Operand::new(memory, range, access)).collect()
    }

    /// Returns the nodes that come directly before a node, or `None` if there is no such node. All have smaller
    /// indices.
    pub fn after(&self, node: usize) -> Option<&[u32]> {
        self.nodes.get(node).map(|node| &node.after[..])
    }

    /// Returns the number of executables that the device has prepared or prepares now.
    pub fn executables(&self) -> usize {
        self.state.lock().instances.len()
    }

    /// Returns whether the recording replays only if it is prepared: it has a loop or foreign work.
    pub fn needs_executable(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.work, Work::Repeat(_) | Work::Foreign(_)))
    }

    /// Prepares the recording on its device, so that a replay is one submission. The first call starts this and returns
    /// at once; the device takes up to milliseconds. On a device without graphs there is nothing to prepare.
    ///
    /// # Errors
    /// The reply is the error of the device if it refuses the graph. Replays then submit node by node, or fail if the
    /// recording [needs an executable](Self::needs_executable).
    pub fn prepare(&self) -> Pending<()> {
        if !self.device.core().capabilities.graphs {
            return Pending::ready(Ok(()));
        }
        // Dropped after the lock.
        let mut retired = Retired::new();
        let State { bindings, instances } = &mut *self.state.lock();
        bindings.refresh(&self.nodes);
        match self.executable(bindings, &mut instances[0], &mut retired) {
            Ok(executable) => executable.ready(&self.device),
            Err(error) => Pending::ready(Err(error.clone())),
        }
    }

    /// Returns whether a replay is one submission, because the recording is [prepared](Self::prepare).
    pub fn is_prepared(&self) -> bool {
        let State { bindings, instances } = &mut *self.state.lock();
        instances[0].ready(bindings).is_some()
    }

    fn executable<'a>(
        &self,
        bindings: &Bindings,
        instance: &'a mut Instance,
        retired: &mut Retired,
    ) -> &'a Result<Arc<Executable>> {
        let uploads = self.kept.uploads.iter().flatten().filter(|source| source.slot.is_none());
        let host =
            || uploads.chain(bindings.slot_sources()).map(|source| source.block.clone()).collect();
        instance.executable(&self.device, &self.nodes, bindings, host, retired)
    }

    /// Submits all nodes to `stream`, after all earlier uses of the same memory. Every later use of that memory comes
    /// after the whole replay.
    ///
    /// A [prepared](Self::prepare) recording is one submission. Otherwise there are as many submissions as nodes, so it
    /// takes the time of that many launches, and other submissions to the same memory wait for that long.
    ///
    /// # Errors
    /// [`Error::Busy`] if the stream has as much in flight as its device allows; nothing is submitted then.
    /// [`Error::WrongDevice`], [`Error::Misuse`] on a stream of a recording, or an error of the device. If a node of a
    /// recording that is not prepared is refused, the nodes before it still run. [`Error::Misuse`] if the recording
    /// [needs an executable](Self::needs_executable) and is not prepared.
    pub fn replay(&self, stream: &Stream) -> Result<Ticket> {
        match self.launch_prepared(stream)? {
            Some(ticket) => Ok(ticket),
            None => self.submit_nodes(stream, &self.state.lock(), 0..self.len()),
        }
    }

    /// Replays the recording as [`replay`](Self::replay) does, if that is one submission. Otherwise submits nothing and
    /// returns `None`.
    ///
    /// # Errors
    /// The errors of [`replay`](Self::replay).
    pub fn launch_prepared(&self, stream: &Stream) -> Result<Option<Ticket>> {
        self.check_stream(stream)?;
        // Dropped after the lock.
        let mut retired = Retired::new();
        let state = &mut *self.state.lock();
        state.bindings.refresh(&self.nodes);
        match self.pick(state, stream) {
            Some((at, graph)) if !self.is_empty() => {
                self.launch(stream, state, at, graph, &mut retired).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Selects the executable for a stream: the one that the stream used last, or one that is idle. If there is none,
    /// prepares another one for later, and selects the first.
    #[inline]
    fn pick(&self, state: &mut State, stream: &Stream) -> Option<(usize, GraphId)> {
        let State { bindings, instances } = state;
        let first = instances[0].ready(bindings)?;
        if instances.len() == 1 && !bindings.has_memory_slots() {
            return Some((0, first));
        }
        let streams = &self.device.core().streams;
        let (mut own, mut idle) = (None, None);
        for (at, instance) in instances.iter_mut().enumerate() {
            let Some(graph) = instance.ready(bindings) else { continue };
            match instance.last {
                Some(last) if last.stream == stream.id() => own = Some((at, graph)),
                Some(last) if !streams.is_complete(last) => {}
                _ => idle = idle.or(Some((at, graph))),
            }
        }
        let picked = own.or(idle);
        if picked.is_none() && bindings.has_memory_slots() && instances.len() < MAX_INSTANCES {
            self.add_instance(bindings, instances, stream);
        }
        picked.or(Some((0, first)))
    }

    #[cold]
    fn add_instance(
        &self,
        bindings: &Bindings,
        instances: &mut SmallVec<[Instance; 1]>,
        stream: &Stream,
    ) {
        let Some(mut instance) = instances[0].another(&self.temporary, stream) else { return };
        // A new instance has nothing to retire.
        _ = self.executable(bindings, &mut instance, &mut Retired::new());
        instance.prepare_in_background(&self.device);
        instances.push(instance);
    }

    /// Submits the whole recording as one graph launch.
    fn launch(
        &self,
        stream: &Stream,
        state: &mut State,
        at: usize,
        graph: GraphId,
        retired: &mut Retired,
    ) -> Result<Ticket> {
        let State { bindings, instances } = state;
        let instance = &mut instances[at];
        let (changes, blocks) = match instance.applied == bindings.version() {
            true => (Vec::new(), Blocks::new()),
            false => self.changes(bindings, instance, retired),
        };
        self.ensure_resources(bindings, instance, retired)?;
        let uses = Cow::Borrowed(instance.accesses.uses());
        let work = Work::Graph(GraphLaunch { graph, uses, changes });
        // Extended in place: `collect` would move the inline storage of the vector.
        let mut operands = SmallVec::<[Operand<'_>; 4]>::new();
        operands.extend(instance.accesses.operands());
        let mut ordered = stream.ordered();
        ordered.turns.take_sorted(instance.accesses.memory().iter().map(|memory| &**memory));
        // SAFETY: the operands are the memory that the nodes of the graph use, and this call has the turns of marked
        // allocations. The kernels stay inside their operands in each replay, which `Function::launch` requires of a
        // recorded launch. The resources of the instance hold the blocks and the modules, and the graph is dropped
        // after its last launch.
        let launched = unsafe { ordered.submit(&work, &operands, &[], None, &blocks) };
        drop(ordered);
        let ticket = launched?;
        (instance.applied, instance.last) = (bindings.version(), Some(ticket));
        if let Some(resources) = &mut instance.resources {
            resources.launched(ticket);
        }
        trace_replayed(ticket, self.len());
        Ok(ticket)
    }

    /// The changes that the executable of an instance does not have yet, and the blocks of the uploads among them.
    #[cold]
    fn changes<'a>(
        &'a self,
        bindings: &'a Bindings,
        instance: &mut Instance,
        retired: &mut Retired,
    ) -> (Vec<NodeChange<'a>>, Blocks) {
        let (mut changes, mut blocks) = (Vec::new(), Blocks::new());
        for node in bindings.changed_since(instance.applied) {
            let work = instance.work(bindings.work(&self.nodes, node));
            changes.push(NodeChange { node, work });
            let slot = bindings.slot_source(node);
            if slot.is_some() {
                retired.extend(instance.resources.take().map(LaunchResources::superseded));
            }
            let source = slot.or_else(|| self.kept.uploads[node as usize].as_ref());
            blocks.extend(source.map(|source| source.block.clone()));
        }
        (changes, blocks)
    }

    /// Creates the owner of the resources of an instance's launches, if there is none.
    #[inline]
    fn ensure_resources(
        &self,
        bindings: &Bindings,
        instance: &mut Instance,
        retired: &mut Retired,
    ) -> Result<()> {
        if instance.resources.is_none() {
            let _executable = self.executable(bindings, instance, retired).clone()?;
            let _slots = bindings.slot_sources().cloned().collect();
            let resources = Resources { _executable, _kept: self.kept.clone(), _slots };
            instance.resources = Some(LaunchResources::new(&self.device, Arc::new(resources)));
        }
        Ok(())
    }

    /// Checks that a replay can be submitted to a stream.
    fn check_stream(&self, stream: &Stream) -> Result<()> {
        self.device.check_same("a stream", stream.device())?;
        if stream.is_recording() {
            return Err(Error::Misuse(Misuse::GraphInGraph));
        }
        stream.credit().check()?;
        self.device.core().reclaim_memory();
        Ok(())
    }

    /// Replays the nodes in another order; see [`replay`](Self::replay). An order that does not keep
    /// [`after`](Self::after) gives other results. An index that is not a node is left out.
    ///
    /// # Errors
    /// The errors of [`replay`](Self::replay). [`Error::Misuse`] if the recording [needs an
    /// executable](Self::needs_executable).
    pub fn replay_in_order(
        &self,
        stream: &Stream,
        order: impl IntoIterator<Item = usize>,
    ) -> Result<Ticket> {
        self.check_stream(stream)?;
        if self.needs_executable() {
            return Err(Error::Misuse(Misuse::WholeGraphOnly));
        }
        let mut state = self.state.lock();
        state.bindings.refresh(&self.nodes);
        self.submit_nodes(stream, &state, order)
    }

    fn submit_nodes(
        &self,
        stream: &Stream,
        state: &State,
        order: impl IntoIterator<Item = usize>,
    ) -> Result<Ticket> {
        if self.needs_executable() {
            return Err(Error::Misuse(Misuse::GraphNotPrepared));
        }
        let accesses = &state.instances[0].accesses;
        let mut ordered = stream.ordered();
        ordered.turns.take_sorted(accesses.memory().iter().map(|memory| &**memory));
        let mut last = Ticket { stream: stream.id(), number: stream.timeline().published() };
        let mut nodes = 0_usize;
        for at in order.into_iter().filter(|at| *at < self.nodes.len()) {
            let at = at as u32;
            let work = state.bindings.work(&self.nodes, at);
            // The order of the stream implies the joins.
            if !matches!(work, Work::Join) {
                let uses = state.bindings.uses(&self.nodes, at);
                let upload = state.bindings.slot_source(at);
                let upload = upload.or_else(|| self.kept.uploads[at as usize].as_ref());
                last = submit_node(&mut ordered, accesses, work, uses, upload)?;
                nodes += 1;
            }
        }
        drop(ordered);
        trace_replayed(last, nodes);
        Ok(last)
    }

    /// Declares that other memory may stand in the place of a recorded allocation in later replays.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the recording does not use the memory, or if it is a variable of a module.
    pub fn declare_slot(&self, recorded: &Arc<Allocation>) -> Result<()> {
        let is_used = self.accesses.binary_search_by_key(&recorded.id(), |used| used.base).is_ok();
        if recorded.is_variable() {
            return Err(Error::memory(SLOT, MemoryConflict::Variable));
        }
        if !is_used {
            return Err(Error::memory(SLOT, MemoryConflict::NotInGraph));
        }
        self.state.lock().bindings.declare(&self.nodes, recorded.id());
        Ok(())
    }

    /// Puts memory in the place of a recorded allocation, for later replays. It has the same size. `exclusive` says
    /// that the caller owns the memory and shared it with no other handle.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the memory is of another device. [`Error::OutOfRange`] if the sizes differ.
    /// [`Error::Misuse`] if the graph uses the memory elsewhere, if it is a variable of a module, or if the graph
    /// writes it and another handle may share it.
    pub fn bind(
        &self,
        recorded: &Arc<Allocation>,
        memory: &Arc<Allocation>,
        exclusive: bool,
    ) -> Result<()> {
        self.device.check_same("a buffer", memory.device())?;
        Limit::Exactly(recorded.bytes()).check(
            "a buffer for a slot of a graph",
            Quantity::Bytes,
            memory.bytes(),
        )?;
        let State { bindings, instances } = &mut *self.state.lock();
        let bound = bindings.bound(recorded.id());
        if bound == memory.id() {
            return Ok(());
        }
        if memory.is_variable() {
            return Err(Error::memory(SLOT, MemoryConflict::Variable));
        }
        if instances.iter().any(|instance| instance.accesses.find(memory.id()).is_some()) {
            return Err(Error::memory(SLOT, MemoryConflict::ElsewhereInGraph));
        }
        let written =
            instances[0].accesses.find(bound).is_some_and(|used| used.0.access == Access::Write);
        if written && !exclusive && !memory.graphs_may_write() {
            return Err(Error::memory(SLOT, MemoryConflict::SharedInGraph));
        }
        if exclusive {
            memory.let_graphs_write();
        }
        memory.take_turns();
        instances.iter_mut().for_each(|instance| instance.accesses.replace(bound, memory.clone()));
        bindings.replace(&self.nodes, recorded.id(), memory.id());
        Ok(())
    }

    /// Returns the nodes, in an order in which they can run.
    #[doc(hidden)]
    pub fn nodes(&self) -> Vec<RecordedNode> {
        described(&self.nodes, &self.kernels)
    }
}

fn submit_node(
    ordered: &mut Ordered<'_>,
    accesses: &AccessSet,
    work: &Work<'_>,
    uses: &[Use],
    upload: Option<&UploadSource>,
) -> Result<Ticket> {
    let used = uses.iter().map(|used| accesses.operand(used));
    let operands: SmallVec<[Operand<'_>; 6]> =
        used.chain(accesses.empty().map(Ok)).collect::<Result<_>>()?;
    let keep =
        upload.map(|source| Keep { until: Until::Accepted, resource: source.retained.clone() });
    let blocks = upload.map_or(&[][..], |source| std::slice::from_ref(&source.block));
    // SAFETY: the node was recorded with these uses. Its kernel stays inside them in each replay, which
    // `Function::launch` requires of a recorded launch. `keep` holds the block of an upload, and the recording holds
    // the modules.
    unsafe { ordered.submit(work, &operands, &[], keep, blocks) }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recording(nodes: {}, on {})", self.len(), self.device.info().address)
    }
}

/// Returns a stream of a new plan. Work that is submitted to the stream is recorded and never runs; [`end_plan`]
/// returns it. Memory that is allocated on the stream does not exist on the device.
pub fn start_plan(device: &Device) -> Stream {
    Stream::recorded(device.clone(), None, Arc::new(Recorder::of_plan()))
}

/// Ends the plan of a stream and returns its nodes, in an order in which they can run.
///
/// # Errors
/// [`Error::Misuse`] if this is not a stream of a plan, or if the plan has ended.
pub fn end_plan(stream: &Stream) -> Result<Vec<RecordedNode>> {
    let Some(recorder) = stream.recorder().filter(|recorder| recorder.is_plan()) else {
        return Err(Error::Misuse(Misuse::NotRecording));
    };
    let recorded = recorder.end()?;
    Ok(described(&recorded.plan.into_nodes(), &recorded.kernels))
}

/// A node of recorded work.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct RecordedNode {
    /// The work.
    pub work: Work<'static>,
    /// The nodes that come directly before this one, in ascending order.
    pub after: Vec<u32>,
    /// The names of the operations that the node belongs to, outermost first, separated by `/`.
    pub name: Option<Name>,
    /// The name of the kernel, if this is a launch.
    pub kernel: Option<Name>,
}

pub(super) fn described(
    nodes: &[Node],
    kernels: &FxHashMap<FunctionId, Name>,
) -> Vec<RecordedNode> {
    let kernel = |work: &Work<'_>| match work {
        Work::Launch(launch) => kernels.get(&launch.function).cloned(),
        _ => None,
    };
    let described = |node: &Node| RecordedNode {
        work: node.work.clone(),
        after: node.after.to_vec(),
        name: node.name.clone(),
        kernel: kernel(&node.work),
    };
    nodes.iter().map(described).collect()
}
