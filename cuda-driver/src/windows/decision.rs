//! Decides which windows have graphs: builds them, refuses them, and evicts them.

use std::sync::Arc;

use super::{
    end::{CachedGraph, End},
    tree::EndId,
    window::{Due, Window},
};
use crate::graphs::GraphSlot;

impl Window {
    /// Ends the measurement of a window. Returns it if it is to be built as a graph.
    pub(super) fn decide(&mut self, id: EndId, pays: bool) -> Option<Due> {
        if !pays {
            self.refuse(id);
            return None;
        }
        if self.tree.end_mut(id).graph.is_some() {
            return None; // it still pays
        }
        self.tree.set_held(id, false);
        if !self.make_room(self.held.len()) {
            self.refuse(id);
            return None;
        }
        let due = self.due();
        let versions = self.held.iter().map(|step| self.tree.node(*step).1);
        let (slot, applied) = (due.slot.clone(), versions.collect());
        let graph = CachedGraph { slot, applied, is_ready: false, launches: 0, used: self.flushes };
        self.tree.end_mut(id).graph = Some(graph);
        self.building.push(id);
        Some(due)
    }

    fn due(&self) -> Due {
        let before = |at: usize| at.checked_sub(1).map(|before| before as u32);
        let nodes = self.held.iter().enumerate().map(|(at, step)| {
            let (node, _) = self.tree.node(*step);
            (node.clone(), before(at).into_iter().collect())
        });
        let (slot, has_built) = (Arc::new(GraphSlot::pending()), self.has_built.clone());
        Due { nodes: nodes.collect(), modules: self.tree.modules(&self.held), slot, has_built }
    }

    /// Reserves memory for a graph. Drops the graphs of this stream that were not launched for the longest time until
    /// there is enough.
    fn make_room(&mut self, nodes: usize) -> bool {
        while !self.memory.reserve(nodes) {
            let ready = |(id, end): (EndId, &mut End)| {
                end.graph.as_ref().filter(|graph| graph.is_ready).map(|graph| (graph.used, id))
            };
            let oldest = self.tree.ends().filter_map(ready).min_by_key(|(used, _)| *used);
            let Some((_, oldest)) = oldest else { return false };
            self.drop_graph(oldest);
            self.tree.end_mut(oldest).evict();
            self.counts.evicted += 1;
        }
        true
    }

    /// Submits a window node by node from now on, until it has come often enough to be measured again.
    pub(super) fn refuse(&mut self, id: EndId) {
        self.drop_graph(id);
        self.tree.end_mut(id).refuse();
        self.counts.refused += 1;
    }

    /// Drops the graph of a window, and holds its nodes no longer.
    pub(super) fn drop_graph(&mut self, id: EndId) {
        self.tree.set_held(id, false);
        if let Some(graph) = self.tree.end_mut(id).graph.take() {
            self.memory.release(graph.nodes());
        }
    }
}
