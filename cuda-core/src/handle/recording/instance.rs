//! Instances: executables of a recording, which a backend has prepared, each with memory of its own for temporary
//! buffers.
//!
//! A device runs the launches of one executable one after the other. So a recording has an executable for each stream
//! that launches it, up to [`MAX_INSTANCES`]. Temporary buffers, of which no handle is left, exist once for each
//! instance. The first instance uses the recorded ones.
//!
//! # Resources of launches
//! Retaining the resources for each launch costs a tenth of the time of a launch. So one owner, [`LaunchResources`],
//! holds them for all launches, with the last launch on each stream. When the owner is dropped, the streams whose last
//! launch is not complete retain the resources.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    handle::{
        device::{Device, WeakDevice},
        recording::{
            access_set::AccessSet,
            bindings::{Bindings, rebase},
        },
        stream::{Allocation, MemoryRequest, Stream},
    },
    order::{Retain, plan::Node},
    protocol::{
        AllocId, Control, Error, Graph, GraphId, GraphNode, HostBlock, Reply, Request, Result,
        Ticket, Work,
    },
    runtime::{Pending, unexpected},
};

/// The maximum number of executables of a recording.
pub const MAX_INSTANCES: usize = 4;

/// An executable of a recording, and the memory that it uses.
pub(super) struct Instance {
    pub(super) accesses: AccessSet,
    /// The instance's own temporary buffers, by the recorded ones.
    own: FxHashMap<AllocId, Arc<Allocation>>,
    executable: Option<Result<Arc<Executable>>>,
    /// The preparation of the executable, if no caller waits for it.
    preparation: Option<Pending<()>>,
    /// The version of the bindings that the executable has.
    pub(super) applied: u64,
    /// The number of rebuilds that the executable has.
    rebuilds: u64,
    /// The owner of the launches' resources. `None` before the first launch, and after a rebuild or a change of an
    /// upload's source.
    pub(super) resources: Option<LaunchResources>,
    /// The last launch.
    pub(super) last: Option<Ticket>,
}

impl Instance {
    /// The first instance, with the recorded memory.
    pub(super) fn first(accesses: AccessSet) -> Self {
        Self::with(accesses, FxHashMap::default())
    }

    fn with(accesses: AccessSet, own: FxHashMap<AllocId, Arc<Allocation>>) -> Self {
        let (executable, preparation, applied, rebuilds) = Default::default();
        let (resources, last) = (None, None);
        Self { accesses, own, executable, preparation, applied, rebuilds, resources, last }
    }

    /// Another instance, with temporary buffers of its own. `None` if there is no memory for them.
    pub(super) fn another(&self, temporary: &[AllocId], stream: &Stream) -> Option<Self> {
        let mut own = FxHashMap::default();
        for recorded in temporary {
            let (_, memory) = self.accesses.find(*recorded)?;
            let (pool, bytes) = (memory.pool(), memory.bytes());
            let allocated = MemoryRequest { stream, pool, bytes }.allocate().ok()?;
            allocated.let_graphs_write();
            own.insert(*recorded, allocated);
        }
        Some(Self::with(self.accesses.replaced(&own), own))
    }

    /// The work of a node, with the instance's own buffers.
    pub(super) fn work<'a>(&self, work: &'a Work<'static>) -> Work<'a> {
        let mut work = work.borrowed();
        if !self.own.is_empty() {
            rebase(&mut work, &|id| self.own.get(&id).map_or(id, |allocation| allocation.id()));
        }
        work
    }

    /// The executable. Made if there is none, or if the graph has to be built again.
    pub(super) fn executable(
        &mut self,
        device: &Device,
        nodes: &[Node],
        bindings: &Bindings,
        host: impl FnOnce() -> Vec<Arc<HostBlock>>,
        retired: &mut Retired,
    ) -> &Result<Arc<Executable>> {
        if self.rebuilds != bindings.rebuilds() {
            self.executable = None;
            retired.extend(self.resources.take());
        }
        if self.executable.is_none() {
            let graph = self.graph(nodes, bindings, host());
            let executable = Executable::new(device, graph).map(Arc::new);
            (self.applied, self.rebuilds) = (bindings.version(), bindings.rebuilds());
            return self.executable.insert(executable);
        }
        self.executable.get_or_insert(Err(Error::AlreadyEnded))
    }

    fn graph(&self, nodes: &[Node], bindings: &Bindings, host: Vec<Arc<HostBlock>>) -> Graph {
        let node = |(at, node): (usize, &Node)| GraphNode {
            work: self.work(bindings.work(nodes, at as u32)).into_owned(),
            after: node.after.to_vec(),
            name: node.name.clone(),
        };
        Graph { nodes: nodes.iter().enumerate().map(node).collect(), host }
    }

    /// Prepares the executable in the background.
    pub(super) fn prepare_in_background(&mut self, device: &Device) {
        if let Some(Ok(executable)) = &self.executable {
            self.preparation = Some(executable.ready(device));
        }
    }

    /// The graph of the executable, if it is ready and up to date.
    #[inline]
    pub(super) fn ready(&mut self, bindings: &Bindings) -> Option<GraphId> {
        if self.preparation.is_some() {
            self.poll_preparation();
        }
        let executable = self.executable.as_ref()?.as_ref().ok()?;
        let is_ready = executable.is_ready() && self.rebuilds == bindings.rebuilds();
        is_ready.then(|| executable.id())
    }

    #[cold]
    fn poll_preparation(&mut self) {
        if let Some(preparation) = &mut self.preparation
            && preparation.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        {
            self.preparation = None;
        }
    }
}

/// A graph of a backend. Dropping it drops the graph. So the resources of its launches ([`LaunchResources`]) hold it
/// until all launches are complete.
pub(crate) struct Executable {
    device: WeakDevice,
    id: GraphId,
    is_ready: Arc<AtomicBool>,
}

impl Executable {
    /// Starts to prepare a graph. Never blocks.
    ///
    /// # Errors
    /// An error of the backend that is known at once.
    pub(crate) fn new(device: &Device, graph: Graph) -> Result<Self> {
        let core = device.core();
        let id = GraphId(core.next_id());
        let control = Control::CreateGraph { id, graph: Arc::new(graph) };
        // SAFETY: the control frees, retires, drops and unloads nothing.
        unsafe { core.backend.control(control) }?;
        Ok(Self { device: device.downgrade(), id, is_ready: Arc::default() })
    }

    pub(crate) fn id(&self) -> GraphId {
        self.id
    }

    /// Whether the preparation has ended, so that a launch does not wait for it.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Returns a wait for the end of the preparation.
    pub(crate) fn ready(&self, device: &Device) -> Pending<()> {
        if self.is_ready() {
            return Pending::ready(Ok(()));
        }
        let is_ready = self.is_ready.clone();
        device.core().request(Request::GraphReady { graph: self.id }, move |reply| match reply {
            Reply::GraphReady => {
                is_ready.store(true, Ordering::Release);
                Ok(())
            }
            other => Err(unexpected(&other)),
        })
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            device.core().retire_graph(self.id);
        }
    }
}

/// The number of streams at which a launch on another stream first removes the entries of complete launches.
const STREAMS: usize = 8;

/// Resources that launches use. When it is dropped, the streams of incomplete launches retain them.
pub struct LaunchResources {
    device: Device,
    resources: Arc<dyn Retain>,
    /// The last launch on each stream.
    last: SmallVec<[Ticket; 2]>,
    /// Whether later launches have other resources.
    is_superseded: bool,
}

/// Resources that later launches do not use. Dropped without the lock of the recording, because a drop can run code of
/// a user.
pub(super) type Retired = Vec<LaunchResources>;

impl LaunchResources {
    /// Creates the owner of the resources of launches on a device.
    pub fn new(device: &Device, resources: Arc<dyn Retain>) -> Self {
        let last = SmallVec::new();
        Self { device: device.clone(), resources, last, is_superseded: false }
    }

    /// The same resources, of a graph whose later launches have others. Such resources are dropped often, so a report
    /// is requested only when many of them wait for one.
    pub fn superseded(mut self) -> Self {
        self.is_superseded = true;
        self
    }

    /// Records a launch that the backend has taken, as the last one of its stream.
    #[inline]
    pub fn launched(&mut self, launch: Ticket) {
        match self.last.iter_mut().find(|ticket| ticket.stream == launch.stream) {
            Some(last) => last.number = launch.number,
            None => self.add_stream(launch),
        }
    }

    #[cold]
    fn add_stream(&mut self, launch: Ticket) {
        if self.last.len() >= STREAMS {
            let streams = &self.device.core().streams;
            self.last.retain(|ticket| !streams.is_complete(*ticket));
        }
        self.last.push(launch);
    }
}

impl Drop for LaunchResources {
    fn drop(&mut self) {
        let core = self.device.core();
        for Ticket { stream, number } in self.last.iter().copied() {
            // A stream that was retired has run everything.
            let Some(timeline) = core.streams.find(stream) else { continue };
            if timeline.progress.completed() >= number {
                continue;
            }
            let is_report_due = timeline.retain_until(number, self.resources.clone());
            // Without later launches on this stream, nothing else requests a report.
            if is_report_due || !self.is_superseded {
                core.retire_launch(Ticket { stream, number });
            }
        }
    }
}
