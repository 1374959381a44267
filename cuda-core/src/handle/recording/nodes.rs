//! The nodes of recorded work as data, for people and tools.

use rustc_hash::FxHashMap;

use super::recording::Recording;
use crate::{
    order::plan::Node,
    protocol::{FunctionId, Name, Work},
};

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

impl Recording {
    /// Returns the nodes, in an order in which they can run.
    #[doc(hidden)]
    pub fn nodes(&self) -> Vec<RecordedNode> {
        described(&self.nodes, &self.kernels)
    }
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
