//! Decoded graphs as graphs of the backend: their uploads read host memory of the session.

use std::sync::Arc;

use cuda_core::{
    Backend, Error, Result,
    protocol::{AllocId, Graph, GraphId, HostBlock, ModuleId, NodeChange, Work},
};

use super::{
    GRAPH_LIMIT, GRAPH_MEMORY,
    record::{Memory, NodeAccess, Record, merged_uses},
};
use crate::worker::quota::Quota;

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
        self.record.uses().iter().map(|used| used.base)
    }
}

/// Makes a decoded graph one of the backend. The bytes of its uploads are in `content`.
///
/// # Errors
/// The quota has no space, or the host has no memory.
pub(in crate::worker) fn prepare(
    mut graph: Graph,
    content: &[u8],
    backend: &dyn Backend,
    quota: &Arc<Quota>,
) -> Result<Prepared> {
    let mut size = Size::default();
    size.add_graph(&graph);
    let charge = quota.charge(size.charged.max(GRAPH_BYTES))?;
    let mut builder = Builder::new(&size, content, backend)?;
    builder.graph(&mut graph);
    let accesses = graph.nodes.iter().map(|node| NodeAccess::of(&node.work)).collect();
    let Builder { block, mut modules, .. } = builder;
    modules.sort_unstable_by_key(|module| module.0);
    modules.dedup();
    let record = Record::new(accesses, Memory { block, _charge: charge });
    Ok(Prepared { graph: Arc::new(graph), record, modules })
}

/// Makes the decoded changes of a launch work of the backend, and adds them to the record. The bytes of their uploads are
/// in `content`.
///
/// # Errors
/// A change names no node, the quota has no space, or the host has no memory. The record does not change then.
pub(in crate::worker) fn change(
    record: &mut Record,
    graph: GraphId,
    changes: Vec<NodeChange<'_>>,
    content: &[u8],
    backend: &dyn Backend,
    quota: &Arc<Quota>,
) -> Result<()> {
    let mut noted = Vec::with_capacity(changes.len());
    for NodeChange { node, work } in changes {
        if node as usize >= record.nodes().len() {
            let object = format!("node in graph {}", graph.0);
            return Err(Error::no_such_object(object, node.into()));
        }
        let mut size = Size::default();
        size.add(&work);
        let charge = quota.charge(size.charged)?;
        let mut builder = Builder::new(&size, content, backend)?;
        let mut work = work.into_owned();
        builder.work(&mut work);
        noted.push((node, work, Memory { block: builder.block, _charge: charge }));
    }
    record.change(noted);
    Ok(())
}

/// The memory that nodes need.
#[derive(Default)]
struct Size {
    charged: u64,
    has_uploads: bool,
    /// The bytes of uploads, which `charged` includes.
    uploaded: usize,
}

impl Size {
    fn add_graph(&mut self, graph: &Graph) {
        for node in &graph.nodes {
            let name = node.name.as_ref().map_or(0, |name| name.len());
            self.charged += (4 * node.after.len() + name) as u64;
            self.add(&node.work);
        }
    }

    fn add(&mut self, work: &Work<'_>) {
        self.charged += NODE_BYTES;
        match work {
            Work::Upload { bytes, .. } => {
                self.has_uploads = true;
                self.uploaded += *bytes as usize;
                self.charged += bytes;
            }
            Work::Launch(launch) => {
                let operands = (launch.relocations.len() + launch.variables.len()) as u64;
                self.charged += launch.params.len() as u64 + OPERAND_BYTES * operands;
            }
            Work::Repeat(repeat) => self.add_graph(&repeat.body),
            _ => {}
        }
    }
}

/// Copies the bytes of uploads from the content to one block, and lets the uploads read them there.
struct Builder<'a> {
    content: &'a [u8],
    block: Option<Arc<HostBlock>>,
    /// The bytes of the block that are in use.
    filled: usize,
    modules: Vec<ModuleId>,
}

impl<'a> Builder<'a> {
    /// # Errors
    /// The host has no memory.
    fn new(size: &Size, content: &'a [u8], backend: &dyn Backend) -> Result<Self> {
        let block = size.has_uploads.then(|| backend.host_block(size.uploaded.max(1)));
        let block = block.transpose()?.map(Arc::new);
        Ok(Self { content, block, filled: 0, modules: Vec::new() })
    }

    fn graph(&mut self, graph: &mut Graph) {
        graph.nodes.iter_mut().for_each(|node| self.work(&mut node.work));
        let has_uploads = graph.nodes.iter().any(|node| matches!(node.work, Work::Upload { .. }));
        graph.host.extend(self.block.iter().filter(|_| has_uploads).cloned());
    }

    fn work(&mut self, work: &mut Work<'static>) {
        match work {
            Work::Launch(launch) => self.modules.push(launch.function.module),
            Work::Repeat(repeat) => {
                // The body of a decoded loop has no other owner.
                if let Some(body) = Arc::get_mut(&mut repeat.body) {
                    self.graph(body);
                    let uses: Vec<_> = body
                        .nodes
                        .iter()
                        .flat_map(|node| NodeAccess::of(&node.work).uses)
                        .collect();
                    repeat.uses = merged_uses(uses.iter()).into();
                }
            }
            Work::Upload { from, bytes, .. } => {
                let Some(block) = &self.block else { return };
                let (start, count) = (from.offset as usize, *bytes as usize);
                // SAFETY: no submission names the block yet.
                let place = unsafe { block.shared_bytes_mut(self.filled..self.filled + count) };
                if let (Some(place), Some(bytes)) = (place, self.content.get(start..start + count))
                {
                    place.copy_from_slice(bytes);
                }
                (from.block, from.offset) = (block.id(), self.filled as u64);
                self.filled += count;
            }
            _ => {}
        }
    }
}
