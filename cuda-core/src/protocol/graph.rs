//! Graphs: work with its order, which a device prepares once and runs many times, and loops inside them.

use std::{borrow::Cow, sync::Arc};

use crate::protocol::{Access, GraphId, HostBlock, Launch, Name, Region, Use, Work};

/// A step of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphNode {
    /// The work: a join, an upload, a copy, a fill, a timestamp, a launch or a loop.
    pub work: Work<'static>,
    /// The nodes that come directly before this one, in ascending order. Their indices are smaller than this one's.
    pub after: Vec<u32>,
    /// The name, if the user gave one. It has no effect on the work.
    pub name: Option<Name>,
}

/// The nodes of a graph.
#[derive(Debug, Default)]
pub struct Graph {
    /// The nodes, in an order in which they can run.
    pub nodes: Vec<GraphNode>,
    /// The host memory that the uploads among them read. Its bytes do not change while the graph exists.
    pub host: Vec<Arc<HostBlock>>,
}

impl Graph {
    /// Calls `each` with every launch, also with those inside loops.
    pub fn launches(&self, each: &mut dyn FnMut(&Launch<'static>)) {
        for node in &self.nodes {
            match &node.work {
                Work::Launch(launch) => each(launch),
                Work::Repeat(repeat) => repeat.body.launches(each),
                _ => {}
            }
        }
    }
}

impl PartialEq for Graph {
    /// Compares the nodes, and the ids of the host blocks.
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes
            && self
                .host
                .iter()
                .map(|block| block.id())
                .eq(other.host.iter().map(|block| block.id()))
    }
}

/// A launch of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphLaunch<'a> {
    /// The graph.
    pub graph: GraphId,
    /// The memory that the nodes use: one operand for each allocation, with its strongest access.
    pub uses: Cow<'a, [Use]>,
    /// The nodes whose work changes, for this launch and for later ones.
    pub changes: Vec<NodeChange<'a>>,
}

/// The new work of a node. It is of the same kind as the work before.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeChange<'a> {
    /// The index of the node.
    pub node: u32,
    /// Its work. The block of an upload is passed beside the launch.
    pub work: Work<'a>,
}

impl GraphLaunch<'_> {
    pub(super) fn into_owned(self) -> GraphLaunch<'static> {
        let changes = self.changes.into_iter();
        let owned = |change: NodeChange<'_>| NodeChange {
            node: change.node,
            work: change.work.into_owned(),
        };
        GraphLaunch {
            graph: self.graph,
            uses: Cow::Owned(self.uses.into_owned()),
            changes: changes.map(owned).collect(),
        }
    }
}

/// The size of the condition of a loop in bytes: a `u32`.
pub const CONDITION_BYTES: u64 = 4;

/// A loop inside a graph. The device reads a word of its memory before each pass. If the word is 0, the loop ends.
/// Otherwise the device runs the nodes of the body, each after those that its `after` names.
#[derive(Debug, Clone, PartialEq)]
pub struct Repeat {
    /// The word, a `u32`. The body may write it.
    pub condition: Region,
    /// The nodes of one pass.
    pub body: Arc<Graph>,
    /// The memory that the body uses: one operand for each allocation, with its strongest access.
    pub uses: Arc<[Use]>,
}

impl Repeat {
    /// Calls `each` with every operand on the device.
    pub(super) fn uses(&self, mut each: impl FnMut(Use)) {
        each(self.condition.used(CONDITION_BYTES, Access::Read));
        self.uses.iter().cloned().for_each(each);
    }
}

/// Counts of a device's graph cache, for the streams that exist. The counts of a stream are removed with the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphCacheInfo {
    /// The windows that were launched as graphs.
    pub launches: u64,
    /// The submissions in these windows.
    pub nodes: u64,
    /// The submissions among them whose parameters had changed since the last launch.
    pub changes: u64,
    /// The graphs that were built.
    pub built: u64,
    /// The number of times that a graph did not save enough time, or that the driver or the memory limit refused it.
    pub refused: u64,
    /// The submissions that were held and never launched, because no caller waited for them and nothing could see their
    /// results.
    pub discarded: u64,
    /// The graphs that were dropped to make room for others.
    pub evicted: u64,
    /// An estimate of the memory of all graphs, in bytes.
    pub bytes: u64,
}
