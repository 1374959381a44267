//! Executables: instantiated graphs of the driver.

use std::mem::Discriminant;

use cuda_core::protocol::{Error, Reply, Result};

use super::{
    node::{DriverNode, OrderedNode, add_all},
    prepared::{Prepared, Replies},
};
use crate::{
    context::{Bound, Primary, Reclaimable},
    driver::{
        api::{ExecutableHandle, GraphHandle, NodeHandle, StreamHandle},
        status::Failed,
    },
};

/// The slot of a graph. It exists before the graph is instantiated.
pub(crate) type GraphSlot = Prepared<Executable>;

/// An instantiated graph. A helper thread destroys it after it is dropped.
pub(crate) struct Executable {
    primary: &'static Primary,
    graph: GraphHandle,
    raw: ExecutableHandle,
    /// The kind and the handle of each node.
    nodes: Vec<(Discriminant<DriverNode>, NodeHandle)>,
}

impl Executable {
    /// Builds and instantiates a graph. Takes up to milliseconds.
    pub(crate) fn new(primary: &'static Primary, nodes: Vec<OrderedNode>) -> Result<Self> {
        primary.alive()?;
        let bound = primary.bind_own_thread()?;
        let failed = |failed| primary.error(failed);
        let mut graph = GraphHandle::NULL;
        // SAFETY: writes one handle.
        unsafe { primary.api.graph_create(&mut graph, 0) }.map_err(failed)?;
        // Destroys the graph if a node or the instantiation is refused.
        let mut executable =
            Self { primary, graph, raw: ExecutableHandle::NULL, nodes: Vec::new() };
        executable.add(&nodes, &bound).map_err(failed)?;
        // SAFETY: the graph was created above; writes one handle.
        unsafe { primary.api.graph_instantiate(&mut executable.raw, graph, 0) }.map_err(failed)?;
        Ok(executable)
    }

    fn add(&mut self, nodes: &[OrderedNode], bound: &Bound) -> Result<(), Failed> {
        // SAFETY: the graph exists. The client keeps the modules of the nodes loaded until it drops the graph, and the
        // building holds them until it ends.
        let handles = unsafe { add_all(nodes, self.graph, self.primary, bound) }?;
        self.nodes = nodes.iter().map(|(node, _)| node.kind()).zip(handles).collect();
        Ok(())
    }

    /// Changes the parameters of a node, for later launches.
    ///
    /// # Safety
    /// The module of the node is loaded.
    pub(crate) unsafe fn change(
        &mut self,
        node: u32,
        work: &DriverNode,
        bound: &Bound,
    ) -> Result<()> {
        let (raw, primary) = (self.raw, self.primary);
        let known = self.nodes.get(node as usize).filter(|(kind, _)| *kind == work.kind());
        let unlike = || Error::no_such_object("graph node of this kind", node.into());
        let (_, handle) = known.ok_or_else(unlike)?;
        // SAFETY: the executable is borrowed mutably, and the node belongs to its graph.
        unsafe { work.set(raw, *handle, primary, bound) }.map_err(|failed| primary.error(failed))
    }

    /// Launches the graph on a stream.
    ///
    /// # Safety
    /// Everything that the nodes name is alive. The caller holds the stream.
    pub(crate) unsafe fn launch(&mut self, stream: StreamHandle, _: &Bound) -> Result<()> {
        // SAFETY: the executable is borrowed mutably and exists. Everything that the nodes name is alive, and the
        // caller holds the stream.
        unsafe { self.primary.api.executable_launch(self.raw, stream) }
            .map_err(|failed| self.primary.error(failed))
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
