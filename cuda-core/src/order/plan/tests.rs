//! Compares plans with a reference: exactly the required pairs of nodes are ordered.

use proptest::prelude::*;

use super::*;
use crate::protocol::{Pattern, Region};

const LEN: u64 = 64;

fn stream(branch: u64) -> StreamId {
    StreamId(branch)
}

/// Work with these operands; the last one is written if there is only one.
fn work(uses: &[(u64, std::ops::Range<u64>, Access)]) -> Work<'static> {
    use crate::protocol::{FunctionId, Launch, LaunchConfig, ModuleId, Relocation};
    let relocation = |(alloc, range, access): &(u64, std::ops::Range<u64>, Access)| Relocation {
        at: 0,
        region: Region { alloc: AllocId(*alloc), offset: range.start },
        bytes: range.end - range.start,
        access: *access,
    };
    Work::Launch(Launch {
        function: FunctionId { module: ModuleId(1), entry: 0 },
        config: LaunchConfig::new(1, 1),
        params: Vec::new().into(),
        relocations: uses.iter().map(relocation).collect::<Vec<_>>().into(),
        variables: Default::default(),
    })
}

fn fill(alloc: u64, range: std::ops::Range<u64>) -> Work<'static> {
    let to = Region { alloc: AllocId(alloc), offset: range.start };
    Work::Fill { to, pattern: Pattern::Byte(0), count: range.end - range.start }
}

fn ticket(branch: u64, number: u64) -> Ticket {
    Ticket { stream: stream(branch), number }
}

fn edges(plan: Plan) -> Vec<Vec<u32>> {
    plan.into_nodes().into_iter().map(|node| node.after.to_vec()).collect()
}

#[test]
fn independent_work_of_one_branch_has_no_edges() {
    let mut plan = Plan::default();
    for alloc in 0..4 {
        assert_eq!(plan.append(stream(1), fill(alloc, 0..LEN), false), Ok(alloc + 1));
    }
    assert!(edges(plan).iter().all(Vec::is_empty));
}

#[test]
fn only_overlapping_ranges_have_edges() {
    let mut plan = Plan::default();
    for range in [0..16, 16..32, 32..64, 8..24] {
        plan.append(stream(1), fill(1, range), false).unwrap();
    }
    assert_eq!(edges(plan), [vec![], vec![], vec![], vec![0, 1]]);
}

/// Every read of a whole buffer is stored in each of its pieces.
#[test]
fn accesses_to_many_pieces_are_limited() {
    let (mut plan, parts) = (Plan::default(), 4000);
    for part in 0..parts {
        plan.append(stream(1), work(&[(1, part..part + 1, Access::Read)]), false).unwrap();
    }
    let read = || work(&[(1, 0..parts, Access::Read)]);
    let reads = (0..MAX_NODES).take_while(|_| plan.append(stream(1), read(), false).is_ok());
    assert_eq!(reads.count(), (MAX_ACCESSES - parts as usize) / parts as usize);
    let refused = plan.append(stream(2), fill(2, 0..LEN), false).unwrap_err();
    assert!(refused.to_string().contains("accesses to pieces of memory"), "{refused}");
}

#[test]
fn many_readers_are_independent() {
    let readers = 3 * crate::order::MAX_READERS as u32;
    let mut plan = Plan::default();
    plan.append(stream(1), fill(1, 0..LEN), false).unwrap();
    for _ in 0..readers {
        plan.append(stream(1), work(&[(1, 0..LEN, Access::Read)]), false).unwrap();
    }
    plan.append(stream(1), fill(1, 0..LEN), false).unwrap();
    let edges = edges(plan);
    assert!(edges[1..=readers as usize].iter().all(|after| *after == [0]));
    assert_eq!(
        edges.last().unwrap().len(),
        readers as usize,
        "not the first write, which is implied"
    );
}

#[test]
fn join_orders_both_branches_before_later_work() {
    let mut plan = Plan::default();
    plan.append(stream(1), fill(1, 0..LEN), false).unwrap();
    plan.append(stream(2), fill(2, 0..LEN), false).unwrap();
    plan.append(stream(2), fill(3, 0..LEN), false).unwrap();
    assert_eq!(plan.join(stream(1), &[ticket(2, 2)]), Ok(2));
    plan.append(stream(1), fill(4, 0..LEN), false).unwrap();
    plan.append(stream(2), fill(5, 0..LEN), false).unwrap();
    let expected: [&[u32]; 6] = [&[], &[], &[], &[0, 1, 2], &[3], &[]];
    assert_eq!(edges(plan), expected);
}

#[test]
fn join_of_an_earlier_ticket_leaves_out_later_work() {
    let mut plan = Plan::default();
    plan.append(stream(2), fill(2, 0..LEN), false).unwrap();
    plan.append(stream(2), fill(3, 0..LEN), false).unwrap();
    plan.join(stream(1), &[ticket(2, 1)]).unwrap();
    assert_eq!(edges(plan), [vec![], vec![], vec![0]]);
}

#[test]
fn tickets_of_live_streams_join_nothing() {
    let mut plan = Plan::default();
    plan.append(stream(1), fill(1, 0..LEN), false).unwrap();
    assert_eq!(plan.join(stream(1), &[ticket(77, 5)]), Ok(1));
    assert_eq!(plan.next(), 1);
}

#[test]
fn work_that_is_in_order_keeps_the_order_of_its_branch() {
    let mut plan = Plan::default();
    for branch in [1, 1, 2, 1, 2] {
        plan.append(stream(branch), work(&[]), true).unwrap();
    }
    plan.append(stream(1), work(&[]), false).unwrap();
    assert_eq!(edges(plan), [vec![], vec![0], vec![], vec![1], vec![2], vec![]]);
}

#[test]
fn nodes_are_limited() {
    let mut plan = Plan::default();
    for _ in 0..MAX_NODES {
        plan.append(stream(1), work(&[]), false).unwrap();
    }
    let full = plan.append(stream(1), work(&[]), false);
    assert!(matches!(full, Err(Error::OutOfRange { .. })), "{full:?}");
    assert_eq!(plan.next() as usize, MAX_NODES);
}

/// Many writers of parts, and readers of all parts.
#[test]
fn edges_are_limited() {
    let parts = 4000u64;
    let mut plan = Plan::default();
    for part in 0..parts {
        plan.append(stream(1), fill(1, part..part + 1), false).unwrap();
    }
    let read = || work(&[(1, 0..parts, Access::Read)]);
    let full = (0..MAX_EDGES).find_map(|_| plan.append(stream(1), read(), false).err());
    assert!(matches!(full, Some(Error::OutOfRange { .. })), "{full:?}");
    let (nodes, edges) = (plan.next(), MAX_EDGES as u64 / parts);
    assert_eq!(u64::from(nodes), parts + edges);
    assert_eq!(plan.append(stream(1), work(&[]), false).err(), full);
}

#[test]
fn access_set_is_the_union_of_all_uses() {
    let mut plan = Plan::default();
    plan.append(stream(1), work(&[(7, 8..16, Access::Read), (3, 0..4, Access::Read)]), false)
        .unwrap();
    plan.append(stream(1), fill(7, 32..40), false).unwrap();
    plan.append(stream(1), work(&[(7, 0..4, Access::Read)]), false).unwrap();
    let expected = [
        Use { base: AllocId(3), range: 0..4, access: Access::Read },
        Use { base: AllocId(7), range: 0..40, access: Access::Write },
    ];
    assert_eq!(access_set(&plan.into_nodes()), expected);
}

#[derive(Debug, Clone)]
enum Step {
    /// Work on a branch, perhaps in order.
    Use(u64, Vec<(u64, std::ops::Range<u64>, Access)>, bool),
    /// The first branch joins the second one at its last node so far, minus this many nodes.
    Join(u64, u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0..LEN, 1..=LEN / 2).prop_map(|(start, len)| start..(start + len).min(LEN));
    let range = prop_oneof![2 => range, 1 => Just(0..LEN)];
    let access = prop_oneof![2 => Just(Access::Read), 1 => Just(Access::Write)];
    let uses = prop::collection::vec((0..4u64, range, access), 0..4);
    let uses = (0..5u64, uses, prop::bool::weighted(0.2))
        .prop_map(|(branch, uses, in_order)| Step::Use(branch, uses, in_order));
    let join = (0..5u64, 0..5u64, 0..3u64).prop_map(|(a, b, less)| Step::Join(a, b, less));
    prop::collection::vec(prop_oneof![5 => uses, 1 => join], 1..50)
}

/// The nodes that come before each node, given those that come directly before it.
fn closure(edges: &[Vec<u32>]) -> Vec<Vec<bool>> {
    let mut before: Vec<Vec<bool>> = Vec::new();
    for after in edges {
        let mut mine = vec![false; edges.len()];
        for earlier in after {
            assert!((*earlier as usize) < before.len(), "an edge to a later node");
            let theirs = &before[*earlier as usize];
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine |= *theirs);
            mine[*earlier as usize] = true;
        }
        before.push(mine);
    }
    before
}

fn conflict(one: &Node, other: &Node) -> bool {
    one.uses.iter().any(|a| {
        other.uses.iter().any(|b| {
            let same =
                a.base == b.base && a.range.start < b.range.end && b.range.start < a.range.end;
            same && (a.access == Access::Write || b.access == Access::Write)
        })
    })
}

proptest! {
    /// The edges order every two nodes that use the same bytes, unless both only read, and every two that a join puts
    /// in order, or that are in order on one branch. They order no other nodes.
    #[test]
    fn exactly_the_required_pairs_are_ordered(steps in steps()) {
        let mut plan = Plan::default();
        // Of each branch its nodes, and of each node the nodes that joins require before it.
        let (mut branches, mut required) = (vec![Vec::<u32>::new(); 5], Vec::<Vec<u32>>::new());
        let (mut joined, mut in_orders) = (vec![Vec::<u32>::new(); 5], vec![Vec::<u32>::new(); 5]);
        for step in steps {
            match step {
                Step::Use(branch, uses, in_order) => {
                    let mut before = joined[branch as usize].clone();
                    if in_order {
                        before.extend(&in_orders[branch as usize]);
                        in_orders[branch as usize].push(plan.next());
                    }
                    required.push(before);
                    branches[branch as usize].push(plan.next());
                    plan.append(stream(branch), work(&uses), in_order).unwrap();
                }
                Step::Join(branch, other, less) => {
                    let (this, number) = (branch as usize, branches[other as usize].len() as u64);
                    let (node, number) = (plan.next(), number.saturating_sub(less));
                    plan.join(stream(branch), &[ticket(other, number)]).unwrap();
                    if plan.next() == node {
                        prop_assert!(branch == other || number == 0);
                        continue;
                    }
                    let mut before = branches[this].clone();
                    before.extend(&branches[other as usize][..number as usize]);
                    required.push(before);
                    branches[this].push(node);
                    joined[this].push(node);
                }
            }
        }
        let nodes = plan.into_nodes();
        for later in 0..nodes.len() {
            let conflicts = (0..later).filter(|earlier| conflict(&nodes[*earlier], &nodes[later]));
            required[later].extend(conflicts.map(|earlier| earlier as u32));
        }
        let edges: Vec<_> = nodes.iter().map(|node| node.after.to_vec()).collect();
        prop_assert_eq!(closure(&edges), closure(&required));
    }
}

/// Allocation 1 has a gap, 2 and 3 have none, 4 has one that only the nodes of a loop show.
#[test]
fn allocations_with_gaps_have_bytes_that_no_node_uses() {
    use std::sync::Arc;

    use crate::protocol::{Graph, GraphNode, Repeat};

    let mut plan = Plan::default();
    for (alloc, range) in [(1, 0..16), (1, 32..64), (2, 32..64), (2, 0..32), (3, 8..16)] {
        plan.append(stream(1), fill(alloc, range), false).unwrap();
    }
    let node = |range| GraphNode { work: fill(4, range), after: Vec::new(), name: None };
    let body = Graph { nodes: vec![node(0..16), node(48..64)], host: Vec::new() };
    let whole = Region { alloc: AllocId(4), offset: 0 }.used(LEN, Access::Write);
    let condition = Region { alloc: AllocId(5), offset: 0 };
    let repeat = Repeat { condition, body: Arc::new(body), uses: [whole].into() };
    plan.append(stream(1), Work::Repeat(repeat), false).unwrap();
    let nodes = plan.into_nodes();
    assert_eq!(allocations_with_gaps(&nodes), [1, 4].map(AllocId).into_iter().collect());
    let ranges = access_set(&nodes).into_iter().map(|used| used.range);
    assert_eq!(ranges.collect::<Vec<_>>(), [0..64, 0..64, 8..16, 0..64, 0..4]);
}
