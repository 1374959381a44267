//! Edges that other edges imply.

use std::collections::HashSet;

use crate::graph::plan::nodes::Plan;

/// The number of nodes that a search visits. An edge that needs a longer search counts as not implied.
const MAX_VISITED: usize = 256;

/// Whether other edges already order `from` before `to`.
pub(super) fn is_implied(plan: &Plan, from: usize, to: usize) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![to as u32];
    while let Some(node) = open.pop() {
        for before in plan.nodes()[node as usize].after() {
            if *before as usize == from && node as usize != to {
                return true;
            }
            // Nodes before `from` do not come after it.
            if *before as usize > from && seen.len() < MAX_VISITED && seen.insert(*before) {
                open.push(*before);
            }
        }
    }
    false
}
