//! Rebasing: work with other memory in the place of an allocation.

use std::sync::Arc;

use crate::protocol::{AllocId, Graph, GraphNode, Region, Use, Work};

/// Puts the allocation `to(id)` in the place of each allocation that the work names.
pub(super) fn rebase(work: &mut Work<'_>, to: &impl Fn(AllocId) -> AllocId) {
    let region = |region: &mut Region| region.alloc = to(region.alloc);
    match work {
        Work::Join | Work::Graph(_) | Work::Foreign(_) => {}
        Work::Upload { to, .. } | Work::Fill { to, .. } | Work::Timestamp { to } => region(to),
        Work::Download { from, .. } | Work::Send { from, .. } => region(from),
        Work::Copy { from, to, .. } => {
            region(from);
            region(to);
        }
        // Variables of modules are never replaced.
        Work::Launch(launch) => {
            if launch
                .relocations
                .iter()
                .any(|relocation| to(relocation.region.alloc) != relocation.region.alloc)
            {
                launch
                    .relocations
                    .to_mut()
                    .iter_mut()
                    .for_each(|relocation| region(&mut relocation.region));
            }
        }
        Work::Repeat(repeat) => {
            region(&mut repeat.condition);
            repeat.body = Arc::new(rebased_graph(&repeat.body, to));
            repeat.uses = repeat.uses.iter().map(|used| rebased_use(used, to)).collect();
        }
    }
}

/// As [`rebase`], for a use.
pub(super) fn rebased_use(used: &Use, to: &impl Fn(AllocId) -> AllocId) -> Use {
    Use { base: to(used.base), ..used.clone() }
}

fn rebased_graph(graph: &Graph, to: &impl Fn(AllocId) -> AllocId) -> Graph {
    let node = |original: &GraphNode| {
        let mut node = original.clone();
        rebase(&mut node.work, to);
        node
    };
    Graph { nodes: graph.nodes.iter().map(node).collect(), host: graph.host.clone() }
}

/// Whether a change of the work needs another executable.
pub(super) fn is_loop(work: &Work<'_>) -> bool {
    matches!(work, Work::Repeat(_))
}
