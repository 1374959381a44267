//! Decoded nodes as work of the backend.

use std::sync::Arc;

use cuda_core::{
    Backend, Error, Result,
    protocol::{
        AllocId, Graph, GraphId, GraphNode, HostBlock, HostRegion, ModuleId, Region, Repeat,
        Status, Work,
    },
};
use cuda_lease::wire::{Change, Node, NodeWork, Step};

use super::{
    GRAPH_LIMIT, GRAPH_MEMORY,
    record::{Memory, NodeAccess, Record, merged_uses},
};
use crate::worker::quota::{Charge, Quota};

/// The smallest charge of a graph, in bytes. This limits the number of graphs.
const GRAPH_BYTES: u64 = GRAPH_MEMORY / GRAPH_LIMIT as u64;

/// The charge of a node in bytes, besides those of its parameters, operands and uploads.
const NODE_BYTES: u64 = 1024;

/// The charge of an operand, in bytes.
const OPERAND_BYTES: u64 = 128;

/// A graph that the backend can create.
pub(in crate::worker) struct Prepared {
    pub(in crate::worker) graph: Arc<Graph>,
    pub(in crate::worker) record: Record,
    /// The modules of its launches, in ascending order.
    pub(in crate::worker) modules: Vec<ModuleId>,
}

impl Prepared {
    /// The allocations that the nodes name.
    pub(in crate::worker) fn allocations(&self) -> impl Iterator<Item = AllocId> + '_ {
        self.record.uses().iter().map(|it| it.base)
    }
}

/// Turns the nodes of a new graph into work.
///
/// # Errors
/// The quota has no space, or the host has no memory.
pub(in crate::worker) fn prepare(
    nodes: &[Node<'_>],
    backend: &dyn Backend,
    quota: &Arc<Quota>,
) -> Result<Prepared> {
    let mut size = Size::default();
    nodes.iter().for_each(|it| size.add(it));
    let charge = charge(size.charged.max(GRAPH_BYTES), backend, quota)?;
    let mut builder = Builder::new(&size, backend)?;
    let graph = builder.graph(nodes);
    let accesses = graph.nodes.iter().map(|it| NodeAccess::of(&it.work)).collect();
    let Builder { block, mut modules, .. } = builder;
    modules.sort_unstable_by_key(|it| it.0);
    modules.dedup();
    let record = Record::new(accesses, Memory { block, _charge: charge });
    Ok(Prepared { graph: Arc::new(graph), record, modules })
}

/// Turns the changes of a launch into work, and adds them to the record.
///
/// # Errors
/// A change names no node, the quota has no space, or the host has no memory. The record does not change then.
pub(in crate::worker) fn change(
    record: &mut Record,
    graph: GraphId,
    changes: &[Change<'_>],
    backend: &dyn Backend,
    quota: &Arc<Quota>,
) -> Result<()> {
    let mut noted = Vec::with_capacity(changes.len());
    for Change { node, step } in changes {
        if *node as usize >= record.nodes().len() {
            return Err(Error::OutOfRange {
                what: format!("the change of node {node} of graph {}", graph.0).into(),
                detail: format!("the graph has {} nodes", record.nodes().len()),
            });
        }
        let mut size = Size::default();
        size.add_step(step);
        let charge = charge(size.charged, backend, quota)?;
        let mut builder = Builder::new(&size, backend)?;
        let work = builder.work(step);
        noted.push((*node, work, Memory { block: builder.block, _charge: charge }));
    }
    record.change(noted);
    Ok(())
}

fn charge(bytes: u64, backend: &dyn Backend, quota: &Arc<Quota>) -> Result<Charge> {
    quota.charge(bytes).map_err(|(limit, free)| over_quota(backend, bytes, free, limit))
}

/// The error for a graph that the host memory of the session's graphs has no space for.
pub(in crate::worker) fn over_quota(
    backend: &dyn Backend,
    bytes: u64,
    free: u64,
    limit: u64,
) -> Error {
    Error::Remote {
        address: backend.info().address.clone(),
        status: Status::of_shortage(bytes, limit),
        detail: format!(
            "a graph needs {bytes} bytes of host memory, {free} of the {limit} bytes for the graphs of a lease are \
             free; drop graphs"
        ),
    }
}

/// The memory that nodes need.
#[derive(Default)]
struct Size {
    charged: u64,
    uploads: usize,
    /// The bytes of uploads, which `charged` includes.
    uploaded: usize,
}

impl Size {
    fn add(&mut self, node: &Node<'_>) {
        let name = node.name.as_ref().map_or(0, |it| it.len());
        self.charged += (4 * node.after.len() + name) as u64;
        match &node.work {
            NodeWork::Step(step) => self.add_step(step),
            NodeWork::Repeat { body, .. } => {
                self.charged += NODE_BYTES;
                body.iter().for_each(|it| self.add(it));
            }
        }
    }

    fn add_step(&mut self, step: &Step<'_>) {
        self.charged += NODE_BYTES;
        match step {
            Step::Write { bytes, .. } => {
                self.uploads += 1;
                self.uploaded += bytes.len();
                self.charged += bytes.len() as u64;
            }
            Step::Launch(launch) => {
                let operands = (launch.relocations.len() + launch.variables.len()) as u64;
                self.charged += launch.params.len() as u64 + OPERAND_BYTES * operands;
            }
            _ => {}
        }
    }
}

/// Builds work, and copies the bytes of its uploads to one block.
struct Builder {
    block: Option<Arc<HostBlock>>,
    /// The bytes of the block that are in use.
    filled: usize,
    modules: Vec<ModuleId>,
}

impl Builder {
    /// # Errors
    /// The host has no memory.
    fn new(size: &Size, backend: &dyn Backend) -> Result<Self> {
        let block = (size.uploads > 0).then(|| backend.host_block(size.uploaded.max(1)));
        let block = block.transpose()?;
        Ok(Self { block: block.map(Arc::new), filled: 0, modules: Vec::new() })
    }

    fn graph(&mut self, nodes: &[Node<'_>]) -> Graph {
        let nodes: Vec<_> = nodes.iter().map(|it| self.node(it)).collect();
        let has_uploads = nodes.iter().any(|it| matches!(it.work, Work::Upload { .. }));
        let host = self.block.iter().filter(|_| has_uploads).cloned().collect();
        Graph { nodes, host }
    }

    fn node(&mut self, node: &Node<'_>) -> GraphNode {
        let work = match &node.work {
            NodeWork::Step(step) => self.work(step),
            NodeWork::Repeat { condition, body } => {
                let body = self.graph(body);
                let uses: Vec<_> =
                    body.nodes.iter().flat_map(|it| NodeAccess::of(&it.work).uses).collect();
                let (body, uses) = (Arc::new(body), merged_uses(uses.iter()).into());
                Work::Repeat(Repeat { condition: *condition, body, uses })
            }
        };
        let name = node.name.as_deref().map(Into::into);
        GraphNode { work, after: node.after.clone(), name }
    }

    fn work(&mut self, step: &Step<'_>) -> Work<'static> {
        match step {
            Step::Write { to, bytes } => self.upload(*to, bytes),
            Step::Copy { from, to, bytes } => Work::Copy { from: *from, to: *to, bytes: *bytes },
            Step::Fill { to, pattern, count } => {
                Work::Fill { to: *to, pattern: *pattern, count: *count }
            }
            Step::Timestamp { to } => Work::Timestamp { to: *to },
            Step::Launch(launch) => {
                self.modules.push(launch.function.module);
                Work::Launch(launch.clone()).into_owned()
            }
            // The reader of the content refuses all other steps.
            _ => Work::Join,
        }
    }

    fn upload(&mut self, to: Region, bytes: &[u8]) -> Work<'static> {
        let Some(block) = &self.block else { return Work::Join };
        let range = self.filled..self.filled + bytes.len();
        // SAFETY: no submission names the block yet.
        if let Some(place) = unsafe { block.shared_bytes_mut(range) } {
            place.copy_from_slice(bytes);
        }
        let from = HostRegion { block: block.id(), offset: self.filled as u64 };
        self.filled += bytes.len();
        Work::Upload { from, to, bytes: bytes.len() as u64 }
    }
}
