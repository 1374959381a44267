//! Loops of graphs: a kernel that sets the condition from a word of device memory, and a conditional node whose body
//! ends with the same kernel.

use cuda_core::protocol::LaunchConfig;

use super::node::{DriverNode, KernelNode};
use crate::{
    context::{Bound, Primary},
    driver::{
        api::{Address, GraphHandle, NodeHandle},
        status::{Failed, NOT_SUPPORTED},
    },
};

/// A node, and the nodes that come directly before it.
pub(crate) type OrderedNode = (DriverNode, Vec<u32>);

/// A loop.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RepeatNode {
    /// The address of the word.
    pub(crate) condition: Address,
    pub(crate) body: Vec<OrderedNode>,
}

impl RepeatNode {
    /// Adds the loop to a graph, after other nodes of it.
    ///
    /// # Safety
    /// As for [`DriverNode::add`].
    pub(super) unsafe fn add(
        &self,
        graph: GraphHandle,
        after: &[NodeHandle],
        primary: &Primary,
        bound: &Bound,
    ) -> Result<NodeHandle, Failed> {
        let unsupported = Failed { call: "cuGraphConditionalHandleCreate", code: NOT_SUPPORTED };
        let kernel = primary.condition.as_ref().ok_or(unsupported)?;
        let (api, context) = (primary.api, primary.context);
        // SAFETY: the graph exists.
        let condition = unsafe { api.condition_create(graph, context) }?;
        let setter = DriverNode::Kernel(KernelNode {
            function: kernel.function(),
            config: LaunchConfig::new(1, 1),
            params: smallvec::smallvec![condition, self.condition],
            bytes: 16,
        });
        // SAFETY: the graph exists, and `after` are nodes of it. The kernel is never unloaded.
        let set = unsafe { setter.add(graph, after, primary, bound) }?;
        // SAFETY: the graph exists, and the node and the condition belong to it.
        let (repeat, body) = unsafe { api.graph_add_while(graph, &[set], condition, context) }?;
        // SAFETY: the body exists as long as its node, and the modules of its functions are loaded.
        let nodes = unsafe { add_all(&self.body, body, primary, bound) }?;
        // After all other nodes of the body.
        // SAFETY: the body exists, and `nodes` are nodes of it. The kernel is never unloaded.
        unsafe { setter.add(body, &nodes, primary, bound) }?;
        Ok(repeat)
    }
}

/// Adds nodes to a graph. Returns their handles.
///
/// # Safety
/// As for [`DriverNode::add`], for every node.
pub(super) unsafe fn add_all(
    nodes: &[OrderedNode],
    graph: GraphHandle,
    primary: &Primary,
    bound: &Bound,
) -> Result<Vec<NodeHandle>, Failed> {
    let mut handles: Vec<NodeHandle> = Vec::with_capacity(nodes.len());
    let mut before = Vec::new();
    for (node, after) in nodes {
        before.clear();
        before.extend(after.iter().filter_map(|index| handles.get(*index as usize).copied()));
        // SAFETY: the graph exists, `before` are nodes of it, and the function's module is loaded.
        handles.push(unsafe { node.add(graph, &before, primary, bound) }?);
    }
    Ok(handles)
}
