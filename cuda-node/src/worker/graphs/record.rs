//! The accesses of a graph, and the host memory that its launches read.

use std::{collections::BTreeMap, sync::Arc};

use cuda_core::{
    Access,
    order::uses_of,
    protocol::{AllocId, HostBlock, NodeChange, Use, Work},
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::worker::quota::Charge;

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

/// The accesses of a node.
pub(in crate::worker) struct NodeAccess {
    pub(in crate::worker) uses: SmallVec<[Use; 2]>,
    pub(in crate::worker) overwrites: bool,
}

/// The host memory of a graph, with its charge. A launch in flight keeps the host memory of its own submission.
#[derive(Clone)]
pub(in crate::worker) struct GraphMemory {
    /// The host memory of the nodes as they were created.
    _created: Arc<Memory>,
    /// The host memory of each node that was changed.
    changed: FxHashMap<u32, Arc<Memory>>,
}

/// Host memory with its charge.
pub(super) struct Memory {
    pub(super) block: Option<Arc<HostBlock>>,
    pub(super) _charge: Charge,
}

impl NodeAccess {
    pub(super) fn of(work: &Work<'_>) -> Self {
        Self { uses: uses_of(work), overwrites: work.overwrites() }
    }
}

impl Record {
    pub(super) fn new(nodes: Vec<NodeAccess>, created: Memory) -> Self {
        let uses = merged_uses(nodes.iter().flat_map(|node| &node.uses)).into();
        let memory = GraphMemory { _created: Arc::new(created), changed: FxHashMap::default() };
        Self { nodes, uses, memory: Arc::new(memory), untaken: BTreeMap::new() }
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
        let own = Arc::make_mut(&mut self.memory);
        for (node, work, memory) in changes {
            if let Some(known) = self.nodes.get_mut(node as usize) {
                *known = NodeAccess::of(&work);
                own.changed.insert(node, Arc::new(memory));
                self.untaken.insert(node, work);
            }
        }
        self.uses = merged_uses(self.nodes.iter().flat_map(|node| &node.uses)).into();
    }

    /// The changes that the backend has not taken, and the blocks of their uploads.
    pub(in crate::worker) fn untaken(&self) -> (Vec<NodeChange<'static>>, Vec<Arc<HostBlock>>) {
        let change =
            |(node, work): (&u32, &Work<'static>)| NodeChange { node: *node, work: work.clone() };
        let block = |node| self.memory.changed.get(node)?.block.clone();
        (self.untaken.iter().map(change).collect(), self.untaken.keys().filter_map(block).collect())
    }

    /// Records that the backend has taken a launch with all changes.
    pub(in crate::worker) fn taken(&mut self) {
        self.untaken.clear();
    }
}

/// Merges operands to one for each allocation, with its strongest access.
pub(super) fn merged_uses<'a>(uses: impl Iterator<Item = &'a Use>) -> Vec<Use> {
    let mut all = FxHashMap::<AllocId, Use>::default();
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
}
