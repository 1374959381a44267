//! Graphs: recorded work that is resolved once and runs as one item.

use std::sync::Arc;

use cuda_core::{
    Error, Result,
    internals::IdMap,
    order::uses_of,
    protocol::{Answer, CONDITION_BYTES, GraphId, NodeChange, Reply, Use, Work as Asked},
};
use parking_lot::RwLock;
use smallvec::SmallVec;

use super::work::Work;
use crate::device::state::lost::contained;
use crate::device::state::{DeviceState, errors};

/// The graphs of a device.
#[derive(Default)]
pub(crate) struct Graphs(RwLock<IdMap<GraphId, Arc<Graph>>>);

/// The nodes of a graph, in an order in which they can run.
#[derive(Clone, Default)]
pub(crate) struct Graph(Vec<Arc<Node>>);

impl Graph {
    pub(crate) fn new(nodes: Vec<Arc<Node>>) -> Self {
        Self(nodes)
    }
}

/// A resolved node.
pub(crate) struct Node {
    work: Work,
    uses: SmallVec<[Use; 2]>,
    overwrites: bool,
}

impl Node {
    pub(crate) fn new(work: Work, asked: &Asked<'_>) -> Arc<Self> {
        Arc::new(Self { work, uses: uses_of(asked), overwrites: asked.overwrites() })
    }
}

impl Graphs {
    pub(crate) fn insert(&self, id: GraphId, graph: Arc<Graph>) {
        self.0.write().insert(id, graph);
    }

    pub(crate) fn remove(&self, id: GraphId) -> Result<()> {
        let removed = self.0.write().remove(&id);
        removed.map(drop).ok_or_else(|| Error::no_such_object("graph", id.0))
    }

    /// Answers at once: a graph needs no preparation.
    pub(crate) fn answer_ready(&self, id: GraphId, answer: Answer) {
        answer.give(self.find(id).map(|_| Reply::GraphReady));
    }

    /// Returns the graph of a launch, with the changes of the launch. They also hold for later launches. `resolve`
    /// resolves the work of a node.
    pub(crate) fn launched(
        &self,
        id: GraphId,
        changes: &[NodeChange<'_>],
        resolve: impl Fn(&Asked<'_>) -> Result<Work>,
    ) -> Result<Arc<Graph>> {
        if changes.is_empty() {
            return self.find(id);
        }
        let mut graphs = self.0.write();
        let graph = graphs.get_mut(&id).ok_or_else(|| Error::no_such_object("graph", id.0))?;
        let mut nodes = Vec::with_capacity(changes.len());
        for NodeChange { node, work } in changes {
            let known = graph.0.get(*node as usize);
            let resolved = resolve(work)?;
            if !known.is_some_and(|known| known.work.is_like(&resolved)) {
                return Err(Error::no_such_object("graph node of this kind", (*node).into()));
            }
            nodes.push((*node as usize, Node::new(resolved, work)));
        }
        // Launches in flight keep the earlier nodes.
        let changed = Arc::make_mut(graph);
        for (at, node) in nodes {
            changed.0[at] = node;
        }
        Ok(graph.clone())
    }

    fn find(&self, id: GraphId) -> Result<Arc<Graph>> {
        self.0.read().get(&id).cloned().ok_or_else(|| Error::no_such_object("graph", id.0))
    }
}

impl Graph {
    /// Calls `each` with every operand of the nodes.
    pub(crate) fn uses(&self, each: impl FnMut(&Use)) {
        self.0.iter().flat_map(|node| &node.uses).for_each(each);
    }

    /// Runs or skips each node. A node that fails or is skipped poisons the memory that it writes, as a submission does.
    /// Returns the fault that loses the device, or else the first error, and whether it is a fault.
    pub(crate) fn run(&self, device: &DeviceState, epoch: u64) -> Option<(Error, bool)> {
        let mut failed: Option<(Error, bool)> = None;
        for node in &self.0 {
            let (error, is_fault) = match &failed {
                // The nodes behind a fault are skipped.
                Some((fault, true)) => (fault.clone(), false),
                _ => match node.run(device, epoch) {
                    Some(failed) => failed,
                    None => continue,
                },
            };
            device.poison.spread(&node.uses, &error);
            if is_fault || failed.is_none() {
                failed = Some((error, is_fault));
            }
        }
        failed
    }
}

impl Graph {
    /// Runs the nodes while the word at `condition` is not 0. Ends at the first error, because a node that is skipped
    /// may be the one that writes the condition.
    fn repeat(&self, condition: u64, device: &DeviceState, epoch: u64) -> Option<(Error, bool)> {
        loop {
            let mut word = [0; CONDITION_BYTES as usize];
            if let Err(error) = device.memory.read(condition, &mut word) {
                return Some((errors::access(error), true));
            }
            if u32::from_ne_bytes(word) == 0 {
                return None;
            }
            if let Some(failed) = self.run(device, epoch) {
                return Some(failed);
            }
        }
    }
}

impl Node {
    fn run(&self, device: &DeviceState, epoch: u64) -> Option<(Error, bool)> {
        let lost = device.lost.check_at(epoch).err();
        if let Some(error) = lost.or_else(|| device.poison.check(&self.uses, self.overwrites)) {
            return Some((error, false));
        }
        if let Work::Repeat { condition, body } = &self.work {
            return body.repeat(*condition, device, epoch);
        }
        let ran = contained(|| self.work.execute(device));
        ran.unwrap_or_else(|panic| Err(panic.into())).err().map(|error| (error, true))
    }
}
