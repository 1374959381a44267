//! Plans: the order of recorded work, and the names of the operations that it belongs to. Independent of devices.
//!
//! A plan is a list of nodes, each with the earlier nodes that it comes after. The same [histories](super::history) as
//! for live submissions name them, so a recording orders the accesses to the same bytes as streams do.
//!
//! # Branches
//! A stream of a recording is a *branch*. Its nodes are in no queue: only data and joins order them. A join is a node.
//! It comes after everything on its own branch and after the branches that it names, and everything later on its branch
//! comes after it. So a fork and the joins of `zip!` order the same work as on streams.
//!
//! On a live stream two kernels in sequence that share no memory also run one after the other. A recording keeps that
//! order only where it can change a result. A kernel accesses its operands only. But kernels may share the variables of
//! a module, or print, and foreign work may use any memory. No operand names these, so nodes that may use them keep the
//! order of their branch: they are *in order* ([`Plan::append`]).
//!
//! # Ranges
//! A plan orders the bytes that operands name, not whole pieces: it splits its histories where a range begins and ends.
//! Beyond [`MAX_PIECES`](super::history::MAX_PIECES) it orders larger ranges. This may add an unnecessary edge, but
//! omits none.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::{
    order::history::{Displaced, Pieces, uses_of},
    protocol::{
        Access, AllocId, CONDITION_BYTES, Error, Limit, Name, Quantity, Result, StreamId, Ticket,
        Use, Work,
    },
    sync::limit,
};

/// The number of nodes that a recording can have.
pub const MAX_NODES: usize = limit(1 << 16, 8);

/// The number of edges that a recording can have: 4 MiB.
pub const MAX_EDGES: usize = limit(1 << 20, 64);

/// The number of accesses that a recording can store, one for each piece of memory that an operand touches: 16 MiB.
pub const MAX_ACCESSES: usize = limit(1 << 22, 256);

/// Earlier nodes, by index.
type After = SmallVec<[u32; 2]>;

/// A step of recorded work.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) work: Work<'static>,
    /// The nodes that come first, in ascending order. Each index is smaller than that of this node.
    pub(crate) after: After,
    /// The operands that have bytes.
    pub(crate) uses: SmallVec<[Use; 4]>,
    /// The names of the operations that the node belongs to.
    pub(crate) name: Option<Name>,
}

/// Recorded work and its order.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    nodes: Vec<Node>,
    histories: FxHashMap<AllocId, Pieces<u32>>,
    branches: FxHashMap<StreamId, Branch>,
    /// The named operations that are being recorded.
    pub(crate) names: Names,
    edges: usize,
    /// Accesses so far: one for each piece of memory that an operand touches.
    accesses: usize,
    /// Set when a node exceeded a limit. Some accesses of that node are entered, so no other node may take its index.
    is_full: bool,
}

/// The nodes of one stream of the recording. The place of a node in the list, counted from 1, is its number on that
/// stream.
#[derive(Debug, Default)]
struct Branch {
    nodes: Vec<u32>,
    /// The places of the joins in `nodes`, counted from 0.
    joins: Vec<usize>,
    /// The last node that is in order.
    in_order: Option<u32>,
}

impl Branch {
    /// The last join, and the nodes after it.
    fn since_join(&self) -> (Option<u32>, &[u32]) {
        match self.joins.last() {
            Some(place) => (Some(self.nodes[*place]), &self.nodes[place + 1..]),
            None => (None, &self.nodes),
        }
    }

    /// The last join among the nodes up to a number, if there is one, and the nodes after it up to that number. All
    /// earlier nodes come before that join.
    fn open_nodes(&self, number: u64) -> &[u32] {
        let end =
            usize::try_from(number).map_or(self.nodes.len(), |number| number.min(self.nodes.len()));
        let joins = self.joins.partition_point(|place| *place < end);
        let start = joins.checked_sub(1).map_or(0, |last| self.joins[last]);
        &self.nodes[start..end]
    }
}

impl Plan {
    /// The index of the next node.
    pub(crate) fn next(&self) -> u32 {
        // At most `MAX_NODES`.
        self.nodes.len() as u32
    }

    /// Adds work to a branch, after everything that it depends on. If it is `in_order`, it also comes after all such
    /// work of the branch. Returns its number on that branch.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] beyond [`MAX_NODES`] nodes, [`MAX_EDGES`] edges or [`MAX_ACCESSES`] accesses. Later calls
    /// fail too.
    pub(crate) fn append(
        &mut self,
        stream: StreamId,
        work: Work<'static>,
        in_order: bool,
    ) -> Result<u64> {
        self.check_room()?;
        let mut uses = SmallVec::new();
        work.uses(|operand| {
            if !operand.range.is_empty() {
                uses.push(operand);
            }
        });
        let mut after = self.claim(&uses)?;
        let node = self.next();
        let branch = self.branches.entry(stream).or_default();
        if in_order {
            after.extend(branch.in_order.replace(node));
        }
        let (join, since) = branch.since_join();
        // A dependency that follows the join comes after it already.
        if !after.iter().any(|node| since.binary_search(node).is_ok()) {
            after.extend(join);
        }
        self.push(stream, work, after, uses)
    }

    /// Orders everything later on a branch after everything earlier on it and after `tickets`, which name nodes of
    /// other branches and what is before them there. Tickets of live streams order nothing here. Returns the number of
    /// the join, or of the node before it if there is nothing to join.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append).
    pub(crate) fn join(&mut self, stream: StreamId, tickets: &[Ticket]) -> Result<u64> {
        let others = tickets.iter().filter(|ticket| ticket.stream != stream);
        let mut after: After =
            others.flat_map(|ticket| self.ends(ticket.stream, ticket.number)).collect();
        if after.is_empty() {
            return Ok(self.branches.get(&stream).map_or(0, |branch| branch.nodes.len() as u64));
        }
        after.extend(self.ends(stream, u64::MAX));
        self.barrier(stream, Work::Join, after)
    }

    /// Adds work to a branch, after everything earlier on it and before everything later. For work whose operands are
    /// not known. Returns its number on that branch.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append).
    pub(crate) fn append_between(&mut self, stream: StreamId, work: Work<'static>) -> Result<u64> {
        let after = self.ends(stream, u64::MAX);
        self.barrier(stream, work, after)
    }

    /// Adds a node that comes before everything later on its branch.
    fn barrier(&mut self, stream: StreamId, work: Work<'static>, after: After) -> Result<u64> {
        self.check_room()?;
        let number = self.push(stream, work, after, SmallVec::new())?;
        if let Some(branch) = self.branches.get_mut(&stream) {
            branch.joins.push(branch.nodes.len() - 1);
        }
        Ok(number)
    }

    /// The nodes, in an order in which they can run.
    pub(crate) fn into_nodes(self) -> Vec<Node> {
        self.nodes
    }

    fn check_room(&self) -> Result<()> {
        if self.nodes.len() < MAX_NODES && !self.is_full {
            return Ok(());
        }
        Err(self.full())
    }

    #[cold]
    fn full(&self) -> Error {
        let (quantity, given, most) = if self.edges > MAX_EDGES {
            (Quantity::Edges, self.edges, MAX_EDGES)
        } else if self.accesses > MAX_ACCESSES {
            (Quantity::Accesses, self.accesses, MAX_ACCESSES)
        } else {
            (Quantity::Nodes, self.nodes.len() + 1, MAX_NODES)
        };
        Error::out_of_range("a recording", quantity, given as u64, Limit::AtMost(most as u64))
    }

    /// Enters the accesses of the next node. Returns the nodes that it has to come after.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append).
    fn claim(&mut self, uses: &[Use]) -> Result<After> {
        let (at, mut displaced) = (self.next(), Displaced::new());
        for Use { base, range, access } in uses {
            let pieces = self.histories.entry(*base).or_default();
            for boundary in [range.start, range.end] {
                // At the limit the pieces stay larger than the range.
                _ = pieces.split([boundary]);
            }
            self.accesses += pieces.count_in(range);
            if self.accesses > MAX_ACCESSES {
                self.is_full = true;
                return Err(self.full());
            }
            pieces.claim(at, *access, range, false, &mut displaced);
        }
        Ok(displaced.into_iter().map(|(node, _)| node).collect())
    }

    /// Nodes of a branch such that everything on it up to a number is one of them or comes before one of them.
    fn ends(&self, stream: StreamId, number: u64) -> After {
        let Some(branch) = self.branches.get(&stream) else { return After::new() };
        let open = branch.open_nodes(number);
        let inner: FxHashSet<u32> =
            open.iter().flat_map(|node| self.after(*node)).copied().collect();
        open.iter().copied().filter(|node| !inner.contains(node)).collect()
    }

    fn after(&self, node: u32) -> &[u32] {
        &self.nodes[node as usize].after
    }

    fn push(
        &mut self,
        stream: StreamId,
        work: Work<'static>,
        after: After,
        uses: SmallVec<[Use; 4]>,
    ) -> Result<u64> {
        let after = self.reduced(after);
        self.edges += after.len();
        if self.edges > MAX_EDGES {
            self.is_full = true;
            return Err(self.full());
        }
        let node = self.next();
        let name = self.names.current().cloned();
        self.nodes.push(Node { work, after, uses, name });
        let branch = self.branches.entry(stream).or_default();
        branch.nodes.push(node);
        Ok(branch.nodes.len() as u64)
    }

    /// Leaves out nodes that come directly before another one of the list.
    fn reduced(&self, mut after: After) -> After {
        after.sort_unstable();
        after.dedup();
        let inner: FxHashSet<u32> =
            after.iter().flat_map(|node| self.after(*node)).copied().collect();
        after.retain(|node| !inner.contains(node));
        after
    }
}

/// The access set of some nodes: for every allocation one use that covers all of theirs, with the strongest access.
/// Sorted by allocation.
pub(crate) fn access_set(nodes: &[Node]) -> Vec<Use> {
    let mut all = FxHashMap::<AllocId, Use>::default();
    for operand in nodes.iter().flat_map(|node| &node.uses) {
        let known = all.entry(operand.base).or_insert_with(|| operand.clone());
        let (start, end) = (known.range.start, known.range.end);
        known.range = start.min(operand.range.start)..end.max(operand.range.end);
        if operand.access == Access::Write {
            known.access = Access::Write;
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_unstable_by_key(|operand| operand.base.0);
    all
}

/// The allocations of which the nodes use only parts, with bytes between them that no node uses. The access set names
/// these bytes too.
pub(crate) fn allocations_with_gaps(nodes: &[Node]) -> FxHashSet<AllocId> {
    let mut parts = FxHashMap::default();
    nodes.iter().for_each(|node| add_parts(&node.work, &node.uses, &mut parts));
    let has_gaps = |parts: &mut Vec<Range<u64>>| {
        parts.sort_unstable_by_key(|part| part.start);
        let mut end = parts.first().map_or(0, |part| part.start);
        parts.iter().any(|part| {
            let is_gap = part.start > end;
            end = end.max(part.end);
            is_gap
        })
    };
    parts.into_iter().filter_map(|(id, mut parts)| has_gaps(&mut parts).then_some(id)).collect()
}

/// Adds the bytes that a node uses, and those that the nodes inside a loop use.
fn add_parts(work: &Work<'_>, uses: &[Use], parts: &mut FxHashMap<AllocId, Vec<Range<u64>>>) {
    let mut add = |used: &Use| parts.entry(used.base).or_default().push(used.range.clone());
    let Work::Repeat(repeat) = work else { return uses.iter().for_each(add) };
    add(&repeat.condition.used(CONDITION_BYTES, Access::Read));
    for node in &repeat.body.nodes {
        add_parts(&node.work, &uses_of(&node.work), parts);
    }
}

/// The named operations that have begun and not ended, outermost first. Each entry holds the full name: those of the
/// outer operations and its own, separated by `/`.
#[derive(Debug, Default)]
pub(crate) struct Names {
    begun: Vec<(u64, Name)>,
    next: u64,
}

impl Names {
    /// Begins an operation inside the current one. Returns the key of its [end](Self::end).
    pub(crate) fn begin(&mut self, name: &str) -> u64 {
        let full = match self.begun.last() {
            Some((_, outer)) => format!("{outer}/{name}").into(),
            None => name.into(),
        };
        let key = self.next;
        self.next += 1;
        self.begun.push((key, full));
        key
    }

    /// Ends the operation with this key. Operations may end in any order, and a second end has no effect.
    pub(crate) fn end(&mut self, key: u64) {
        self.begun.retain(|(begun, _)| *begun != key);
    }

    /// The full name of the innermost operation.
    pub(crate) fn current(&self) -> Option<&Name> {
        self.begun.last().map(|(_, name)| name)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, not(loom)))]
mod names_tests {
    use super::*;

    #[test]
    fn names_nest_and_end_in_any_order() {
        let mut names = Names::default();
        assert_eq!(names.current(), None);
        let outer = names.begin("a");
        let inner = names.begin("b");
        assert_eq!(names.current().map(|name| &**name), Some("a/b"));
        names.end(outer);
        assert_eq!(names.current().map(|name| &**name), Some("a/b"));
        names.end(inner);
        names.end(inner);
        assert_eq!(names.current(), None);
    }
}
