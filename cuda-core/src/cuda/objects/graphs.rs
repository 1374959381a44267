//! Graphs: built and instantiated on a helper thread, launched and changed by submissions.
//!
//! # Rules
//! - A graph is in the table from the control that creates it to the control that drops it. A launch blocks while its graph
//!   is being prepared. A client avoids this by waiting for [`Request::GraphReady`](crate::protocol::Request::GraphReady)
//!   first.
//! - The driver does not allow two threads to change or launch an executable at the same time, so its slot is locked
//!   meanwhile.
//! - If a change fails, the executable may have some of the launch's changes and not the others. It then fails all later
//!   launches with the same error.

use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::{
    graph_node::DriverNode,
    modules::ModuleSlot,
    prepared::{Prepared, Replies},
};
use crate::{
    cuda::{
        context::{Bound, Primary, Reclaimable},
        driver::{
            api::{ExecutableHandle, GraphHandle, NodeHandle, StreamHandle},
            status::Failed,
        },
        streams::{taken, unknown},
    },
    protocol::{Answer, Error, GraphId, Reply, Result},
    sync::HelperThread,
};

/// The graphs of one backend.
pub(crate) struct Graphs {
    primary: &'static Primary,
    table: RwLock<FxHashMap<GraphId, Arc<GraphSlot>>>,
}

/// The slot of a graph. It exists before the graph is instantiated.
pub(crate) type GraphSlot = Prepared<Executable>;

/// A node, and the nodes that come directly before it.
pub(crate) type OrderedNode = (DriverNode, Vec<u32>);

/// An instantiated graph. Destroyed when it is dropped, by a helper thread.
pub(crate) struct Executable {
    primary: &'static Primary,
    graph: GraphHandle,
    raw: ExecutableHandle,
    nodes: Vec<(DriverNode, NodeHandle)>,
}

impl Graphs {
    pub(crate) fn new(primary: &'static Primary) -> Self {
        Self { primary, table: RwLock::default() }
    }

    /// Starts to build a graph on the helper thread. Never blocks. `modules` are those of the nodes: the client may drop
    /// the graph and unload them while it is being built.
    pub(crate) fn create(
        &self,
        id: GraphId,
        nodes: Vec<OrderedNode>,
        modules: Vec<Arc<ModuleSlot>>,
        helper: &HelperThread,
    ) -> Result<()> {
        let (primary, slot) = (self.primary, Arc::new(GraphSlot::pending()));
        {
            let mut table = self.table.write();
            if table.contains_key(&id) {
                return Err(taken(format!("graph {}", id.0)));
            }
            table.insert(id, slot.clone());
        }
        let build = move || {
            slot.end(Executable::new(primary, nodes));
            drop(modules);
        };
        helper.run(build).map_err(|error| {
            self.table.write().remove(&id);
            Error::host("failed to start the helper thread that builds graphs", &error)
        })
    }

    /// Answers when the graph is ready, or has failed. Never blocks.
    pub(crate) fn answer_ready(&self, id: GraphId, answer: Answer) {
        match self.find(id) {
            Ok(slot) => slot.answer(answer),
            Err(error) => answer.give(Err(error)),
        }
    }

    /// Removes a graph that no launch uses.
    pub(crate) fn remove(&self, id: GraphId) -> Result<()> {
        let removed = self.table.write().remove(&id);
        removed.map(drop).ok_or_else(|| self.unknown(id))
    }

    /// Launches a graph on a stream, with new parameters for some of its nodes. Blocks while the graph is being prepared.
    ///
    /// # Safety
    /// The modules of the nodes are loaded. The caller holds the stream.
    pub(crate) unsafe fn launch(
        &self,
        id: GraphId,
        changes: impl Iterator<Item = Result<(u32, DriverNode)>>,
        stream: StreamHandle,
        bound: &Bound,
    ) -> Result<()> {
        let slot = self.find(id)?;
        let mut executable = slot.wait()?;
        for change in changes {
            let (node, work) = change?;
            // SAFETY: the caller's promise.
            let changed = unsafe { executable.change(node, work, bound) };
            if let Err(error) = changed {
                drop(executable);
                slot.fail(error.clone());
                return Err(error);
            }
        }
        // SAFETY: the executable is locked and exists; the rest is the caller's promise.
        unsafe { self.primary.api.executable_launch(executable.raw, stream) }
            .map_err(|failed| self.primary.error(failed))
    }

    /// Takes out every graph, for a backend that is dropped.
    pub(crate) fn take(&self) -> Vec<Arc<GraphSlot>> {
        std::mem::take(&mut *self.table.write()).into_values().collect()
    }

    fn find(&self, id: GraphId) -> Result<Arc<GraphSlot>> {
        let found = self.table.read().get(&id).cloned();
        found.ok_or_else(|| self.unknown(id))
    }

    #[cold]
    fn unknown(&self, id: GraphId) -> Error {
        unknown(format!("graph {}", id.0), &self.primary.info.address)
    }
}

impl Executable {
    /// Builds and instantiates a graph. Takes up to milliseconds.
    fn new(primary: &'static Primary, nodes: Vec<OrderedNode>) -> Result<Self> {
        primary.alive()?;
        let bound = primary.bind_own_thread()?;
        let failed = |failed| primary.error(failed);
        let mut graph = GraphHandle::NULL;
        // SAFETY: writes one handle.
        unsafe { primary.api.graph_create(&mut graph, 0) }.map_err(failed)?;
        // Destroys the graph if a node or the instantiation is refused.
        let mut executable =
            Self { primary, graph, raw: ExecutableHandle::NULL, nodes: Vec::new() };
        executable.add(nodes, &bound).map_err(failed)?;
        // SAFETY: the graph was created above; writes one handle.
        unsafe { primary.api.graph_instantiate(&mut executable.raw, graph, 0) }.map_err(failed)?;
        Ok(executable)
    }

    fn add(&mut self, nodes: Vec<OrderedNode>, bound: &Bound) -> Result<(), Failed> {
        self.nodes.reserve_exact(nodes.len());
        let mut before = Vec::new();
        for (node, after) in nodes {
            before.clear();
            before.extend(after.iter().filter_map(|it| Some(self.nodes.get(*it as usize)?.1)));
            // SAFETY: the graph exists, and these are nodes of it. The client keeps the modules of the nodes loaded until
            // it drops the graph, and the building holds them until it ends.
            let handle = unsafe { node.add(self.graph, &before, self.primary, bound) }?;
            self.nodes.push((node, handle));
        }
        Ok(())
    }

    /// Changes the parameters of a node, for later launches.
    ///
    /// # Safety
    /// The module of the node is loaded.
    unsafe fn change(&mut self, node: u32, work: DriverNode, bound: &Bound) -> Result<()> {
        let (raw, primary) = (self.raw, self.primary);
        let (known, handle) = self
            .nodes
            .get_mut(node as usize)
            .filter(|(known, _)| known.is_like(&work))
            .ok_or_else(|| unlike(node))?;
        // SAFETY: the executable is borrowed mutably, and the node belongs to its graph.
        unsafe { work.set(raw, *handle, primary, bound) }
            .map_err(|failed| primary.error(failed))?;
        *known = work;
        Ok(())
    }
}

impl Replies for Executable {
    fn reply(&self) -> Reply {
        Reply::GraphReady
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        let (graph, executable) = (self.graph, self.raw);
        self.primary.reclaim.put(Box::new(Destroyed { graph, executable }));
    }
}

/// The handles of a graph that was dropped.
struct Destroyed {
    graph: GraphHandle,
    executable: ExecutableHandle,
}

impl Reclaimable for Destroyed {
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        _: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        // SAFETY: its slot was dropped, so no thread uses the handles. No launch of it is in flight.
        unsafe {
            if self.executable != ExecutableHandle::NULL {
                _ = primary.api.executable_destroy(self.executable);
            }
            _ = primary.api.graph_destroy(self.graph);
        }
        None
    }
}

#[cold]
fn unlike(node: u32) -> Error {
    let detail = "the graph has no such node, or the node is of another kind".into();
    Error::OutOfRange { what: format!("the change of node {node}").into(), detail }
}
