//! Graphs: work with its order, which a device prepares once and runs many times.

use std::{borrow::Cow, sync::Arc};

use super::{GraphId, HostBlock, Launch, Use, Work};

/// The name of a node, for people: the names of the operations that it belongs to, outermost first, separated by `/`.
pub type Name = Arc<str>;

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
            && self.host.iter().map(|it| it.id()).eq(other.host.iter().map(|it| it.id()))
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
        let owned = |it: NodeChange<'_>| NodeChange { node: it.node, work: it.work.into_owned() };
        GraphLaunch {
            graph: self.graph,
            uses: Cow::Owned(self.uses.into_owned()),
            changes: changes.map(owned).collect(),
        }
    }
}
