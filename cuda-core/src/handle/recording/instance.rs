//! Instances: executables of a recording, each with memory of its own for temporary buffers.
//!
//! A device runs the launches of one executable one after the other. So a recording has an executable for each stream
//! that launches it, up to [`MAX_INSTANCES`]. Temporary buffers, of which no handle is left, exist once for each
//! instance. The first instance uses the recorded ones.

use std::{
    sync::Arc,
    task::{Context, Waker},
};

use rustc_hash::FxHashMap;

use super::{
    access_set::AccessSet,
    bindings::Bindings,
    executable::Executable,
    launch_resources::{LaunchResources, Retired},
    rebase::rebase,
};
use crate::{
    handle::stream::MemoryRequest,
    handle::{
        device::Device,
        stream::{Allocation, Stream},
    },
    order::plan::Node,
    protocol::{AllocId, Error, Graph, GraphId, GraphNode, HostBlock, Result, Ticket, Work},
    runtime::Pending,
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
