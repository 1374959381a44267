//! Rebasing: work with other memory in the place of an allocation.

use std::sync::Arc;

use crate::protocol::{AllocId, Graph, GraphNode, Region, Use, Work};

/// Puts `to` in the place of the allocation `from`, wherever the work names it.
pub(super) fn rebase(work: &mut Work<'_>, from: AllocId, to: AllocId) {
    let region = |it: &mut Region| {
        if it.alloc == from {
            it.alloc = to;
        }
    };
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
            launch.relocations.to_mut().iter_mut().for_each(|it| region(&mut it.region));
        }
        Work::Repeat(repeat) => {
            region(&mut repeat.condition);
            repeat.body = Arc::new(rebased_graph(&repeat.body, from, to));
            repeat.uses = repeat.uses.iter().map(|it| rebased_use(it, from, to)).collect();
        }
    }
}

/// As [`rebase`], for a use.
pub(super) fn rebased_use(used: &Use, from: AllocId, to: AllocId) -> Use {
    Use { base: if used.base == from { to } else { used.base }, ..used.clone() }
}

fn rebased_graph(graph: &Graph, from: AllocId, to: AllocId) -> Graph {
    let node = |it: &GraphNode| {
        let mut node = it.clone();
        rebase(&mut node.work, from, to);
        node
    };
    Graph { nodes: graph.nodes.iter().map(node).collect(), host: graph.host.clone() }
}

/// Whether a change of the work needs another executable.
pub(super) fn is_loop(work: &Work<'_>) -> bool {
    matches!(work, Work::Repeat(_))
}
