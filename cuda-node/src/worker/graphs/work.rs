//! Decoded graphs as work of the backend: the accesses of their nodes, and the host memory that their uploads read.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use cuda_core::{
    Access, Backend, Error, Result,
    internals::IdMap,
    order::uses_of,
    protocol::{AllocId, Graph, GraphId, HostBlock, ModuleId, NodeChange, Use, Work},
};
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{Awaited, GRAPH_LIMIT, GRAPH_MEMORY};
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
    /// The first allocations of the record that were not pending. There may be many, and the graph is looked at again and
    /// again.
    made: usize,
}

impl Prepared {
    /// Returns what the graph waits for, or `None` if the backend can create it.
    pub(in crate::worker) fn awaits(
        &mut self,
        can_launch: impl Fn(ModuleId) -> bool,
        is_pending: impl Fn(AllocId) -> bool,
    ) -> Option<Awaited> {
        let uses = &self.record.uses()[self.made..];
        let made = uses.iter().take_while(|used| !is_pending(used.base)).count();
        self.made += made;
        if let Some(used) = uses.get(made) {
            return Some(Awaited::Allocation(used.base));
        }
        // All of them: one may be loading again, and the backend would wait for it.
        let loading = self.modules.iter().find(|module| !can_launch(**module));
        loading.map(|module| Awaited::Module(*module))
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
    Ok(Prepared { graph: Arc::new(graph), record, modules, made: 0 })
}

/// Makes the decoded changes of a launch work of the backend, and adds them to the record. The bytes of their uploads
/// are in `content`.
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

/// The accesses of a graph's nodes.
pub(in crate::worker) struct Record {
    nodes: Vec<NodeAccess>,
    /// One operand for each allocation, with its strongest access.
    uses: Arc<[Use]>,
    memory: Arc<GraphMemory>,
    /// Changes that the backend has not taken. A launch that is refused has no effect, but its changes hold for later
    /// ones.
    untaken: BTreeMap<u32, Work<'static>>,
}

impl Record {
    pub(super) fn new(nodes: Vec<NodeAccess>, created: Memory) -> Self {
        let uses = merged_uses(nodes.iter().flat_map(|node| &node.uses)).into();
        let (changed, replaced) = Default::default();
        let kept = Arc::new(Mutex::new(Kept { _created: created, changed, replaced }));
        let memory = Arc::new(GraphMemory { kept, version: 0 });
        Self { nodes, uses, memory, untaken: BTreeMap::new() }
    }

    pub(in crate::worker) fn nodes(&self) -> &[NodeAccess] {
        &self.nodes
    }

    /// The memory that the nodes use: one operand for each allocation, with its strongest access.
    pub(in crate::worker) fn uses(&self) -> &Arc<[Use]> {
        &self.uses
    }

    /// The host memory, which a launch keeps until it is complete.
    pub(in crate::worker) fn memory(&self) -> &Arc<GraphMemory> {
        &self.memory
    }

    /// Replaces the work of nodes that exist, with their host memory.
    pub(super) fn change(&mut self, changes: Vec<(u32, Work<'static>, Memory)>) {
        let (mut kept, version) = (self.memory.kept.lock(), self.memory.version);
        let mut replaced = Vec::new();
        for (node, work, memory) in changes {
            if let Some(known) = self.nodes.get_mut(node as usize) {
                *known = NodeAccess::of(&work);
                replaced.extend(kept.changed.insert(node, memory));
                self.untaken.insert(node, work);
            }
        }
        kept.replaced.push_back(Replaced { version, is_unused: false, memory: replaced });
        drop(kept);
        let kept = self.memory.kept.clone();
        self.memory = Arc::new(GraphMemory { kept, version: version + 1 });
        self.uses = merged_uses(self.nodes.iter().flat_map(|node| &node.uses)).into();
    }

    /// The changes that the backend has not taken, and the blocks of their uploads.
    pub(in crate::worker) fn untaken(&self) -> (Vec<NodeChange<'static>>, Vec<Arc<HostBlock>>) {
        let change =
            |(node, work): (&u32, &Work<'static>)| NodeChange { node: *node, work: work.clone() };
        let kept = self.memory.kept.lock();
        let block = |node| kept.changed.get(node)?.block.clone();
        (self.untaken.iter().map(change).collect(), self.untaken.keys().filter_map(block).collect())
    }

    pub(in crate::worker) fn has_untaken(&self) -> bool {
        !self.untaken.is_empty()
    }

    /// Records that the backend has taken a launch with all changes.
    pub(in crate::worker) fn taken(&mut self) {
        self.untaken.clear();
    }
}

/// The accesses of a node.
pub(in crate::worker) struct NodeAccess {
    pub(in crate::worker) uses: SmallVec<[Use; 2]>,
    pub(in crate::worker) overwrites: bool,
}

impl NodeAccess {
    fn of(work: &Work<'_>) -> Self {
        Self { uses: uses_of(work), overwrites: work.overwrites() }
    }
}

/// A version of the host memory of a graph, which every change ends. A launch in flight holds the version of its own
/// submission, and with it the memory that later changes have replaced.
pub(in crate::worker) struct GraphMemory {
    kept: Arc<Mutex<Kept>>,
    version: u64,
}

/// The host memory of all versions of a graph. Versions share it: a map of the changed nodes for each launch in flight
/// would take memory that no quota counts.
struct Kept {
    /// The host memory of the nodes as they were created.
    _created: Memory,
    /// The host memory of each node that was changed.
    changed: IdMap<u32, Memory>,
    /// The memory that changes have replaced, in their order.
    replaced: VecDeque<Replaced>,
}

/// The host memory that a change has replaced. Launches of its version and of earlier ones may use it.
struct Replaced {
    version: u64,
    /// Whether no launch of the version is in flight, and none will be.
    is_unused: bool,
    memory: Vec<Memory>,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        let mut kept = self.kept.lock();
        let replaced = &mut kept.replaced;
        if let Ok(at) = replaced.binary_search_by_key(&self.version, |replaced| replaced.version) {
            replaced[at].is_unused = true;
        }
        let count = replaced.iter().take_while(|replaced| replaced.is_unused).count();
        let unused: Vec<_> = replaced.drain(..count).map(|replaced| replaced.memory).collect();
        drop(kept);
        // The last use of host memory gives it back to the backend, so no lock is held.
        drop(unused);
    }
}

/// Host memory with its charge.
pub(super) struct Memory {
    pub(super) block: Option<Arc<HostBlock>>,
    _charge: Charge,
}

/// Merges operands to one for each allocation, with its strongest access.
fn merged_uses<'a>(uses: impl Iterator<Item = &'a Use>) -> Vec<Use> {
    let mut all = IdMap::<AllocId, Use>::default();
    for used in uses {
        let known = all.entry(used.base).or_insert_with(|| used.clone());
        let range = &known.range;
        known.range = range.start.min(used.range.start)..range.end.max(used.range.end);
        if used.access == Access::Write {
            known.access = Access::Write;
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_unstable_by_key(|used| used.base.0);
    all
}

#[cfg(test)]
mod tests {
    use cuda_core::protocol::{Pattern, Region};

    use super::*;

    #[test]
    fn merged_uses_have_one_operand_for_each_allocation_with_the_strongest_access() {
        let used = |id, range, access| Use { base: AllocId(id), range, access };
        let uses = [
            used(7, 8..16, Access::Read),
            used(3, 0..4, Access::Read),
            used(7, 32..40, Access::Write),
            used(7, 16..20, Access::Read),
        ];
        let expected = [used(3, 0..4, Access::Read), used(7, 8..40, Access::Write)];
        assert_eq!(merged_uses(uses.iter()), expected);
    }

    /// The memory of launches in flight grows with the memory that changes replace, which the quota counts.
    #[test]
    fn changes_of_launches_in_flight_use_counted_memory() {
        let quota = Arc::new(Quota::new("", 1000));
        let memory = || Memory { block: None, _charge: quota.charge(1).unwrap() };
        let fill = || {
            let (to, pattern) = (Region { alloc: AllocId(1), offset: 0 }, Pattern::Word(1));
            Work::Fill { to, pattern, count: 1 }
        };
        let nodes = || (0..100).map(|_| NodeAccess::of(&fill())).collect();
        let mut record = Record::new(nodes(), memory());
        record.change((0..100).map(|node| (node, fill(), memory())).collect());
        let mut launches = vec![record.memory().clone()];
        for _ in 0..50 {
            record.change(vec![(7, fill(), memory())]);
            launches.push(record.memory().clone());
        }
        let kept = launches[0].kept.clone();
        assert!(launches.iter().all(|launch| Arc::ptr_eq(&launch.kept, &kept)));
        let replaced =
            || kept.lock().replaced.iter().map(|change| change.memory.len()).sum::<usize>();
        let used = || quota.limit_and_used().1;
        assert_eq!((replaced(), kept.lock().changed.len(), used()), (50, 100, 151));
        // An earlier launch uses what later changes have replaced.
        launches.drain(10..20);
        assert_eq!(replaced(), 50);
        launches.drain(..10);
        assert_eq!((replaced(), used()), (30, 131));
        launches.clear();
        assert_eq!((replaced(), used()), (0, 101));
        drop((record, kept));
        assert_eq!(quota.limit_and_used().1, 0);
    }
}
