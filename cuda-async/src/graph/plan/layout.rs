//! Places of nodes and groups in a drawing, and the edges that it leaves out because others imply them.
//!
//! A node's *rank* is the length of the longest path to it. All nodes of a rank have the same height, and every edge
//! goes down. From left to right, each member of a group takes the first place that is free in all of its ranks; one
//! that has its ranks to itself is in the middle. So the boxes of groups contain only their own nodes, and boxes of
//! groups that follow each other may lie below each other.

use std::collections::HashSet;

use crate::graph::plan::nodes::{Group, Member, Plan};

/// Distances in pixels.
pub(super) const PAD: usize = 12;
pub(super) const HEADER: usize = 22;
pub(super) const GAP_X: usize = 24;
pub(super) const GAP_Y: usize = 34;
pub(super) const MARGIN: usize = 16;

/// The number of ranks that an edge is checked against.
const MAX_PASSED: usize = 64;

/// The places in a drawing, in pixels from its top left corner.
pub(super) struct Layout {
    /// The top left corner of each node.
    pub(super) nodes: Vec<(usize, usize)>,
    /// The rank of each node.
    ranks: Vec<usize>,
    /// The left ends of the nodes of each rank, in ascending order.
    lefts: Vec<Vec<usize>>,
    /// The size of every node.
    size: NodeSize,
    /// Outer groups come before inner ones.
    pub(super) groups: Vec<GroupBox>,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// The box of a group.
pub(super) struct GroupBox {
    pub(super) name: String,
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// The size of every node, in pixels.
#[derive(Clone, Copy)]
pub(super) struct NodeSize {
    pub(super) width: usize,
    pub(super) height: usize,
}

impl Layout {
    pub(super) fn new(plan: &Plan, tree: &Group, size: NodeSize) -> Self {
        let ranks = ranks(plan);
        let block = Block::of_group(tree, &ranks, size.width);
        let rows = Rows::new(&ranks, &block, size.height);
        let mut layout = Self {
            nodes: vec![(0, 0); ranks.len()],
            ranks,
            lefts: vec![Vec::new(); rows.y.len()],
            size,
            groups: Vec::new(),
            width: block.width + 2 * MARGIN,
            height: rows.end + MARGIN,
        };
        layout.place(block, MARGIN, &rows);
        for (rank, (x, _)) in layout.ranks.iter().zip(&layout.nodes) {
            layout.lefts[*rank].push(*x);
        }
        layout.lefts.iter_mut().for_each(|lefts| lefts.sort_unstable());
        layout
    }

    /// The place of a vertical line beside the nodes between the ends of an edge, if a straight edge would hit one of
    /// them. Looks at the first [`MAX_PASSED`] ranks, and moves past as many nodes.
    pub(super) fn lane(&self, from: usize, to: usize) -> Option<usize> {
        let (begin, end) = (self.ranks[from], self.ranks[to]);
        let (x1, x2) = (self.nodes[from].0, self.nodes[to].0);
        let between = || begin + 1..end.min(begin + 1 + MAX_PASSED);
        let straight = |rank: usize| (x1 * (end - rank) + x2 * (rank - begin)) / (end - begin);
        let half = self.size.width / 2;
        between().find_map(|rank| self.hit(rank, straight(rank) + half))?;
        let mut lane = x1 + half;
        for _ in 0..MAX_PASSED {
            let Some(right) = between().find_map(|rank| self.hit(rank, lane)) else { break };
            lane = right + PAD;
        }
        Some(lane)
    }

    /// The right end of the node of a rank at or near `x`.
    fn hit(&self, rank: usize, x: usize) -> Option<usize> {
        const NEAR: usize = 4;
        let lefts = &self.lefts[rank];
        let left = lefts[..lefts.partition_point(|left| *left <= x + NEAR)].last()?;
        Some(left + self.size.width).filter(|right| *right + NEAR >= x)
    }

    /// Places the members of a group whose contents begin at `x`.
    fn place(&mut self, block: Block, x: usize, rows: &Rows) {
        for (at, part) in block.parts {
            match part {
                Part::Node(index) => self.nodes[index] = (x + at, rows.y[self.ranks[index]]),
                Part::Group(name, inner) => {
                    let y = rows.y[inner.first] - inner.begins * HEADER;
                    let end = rows.y[inner.last] + self.size.height + inner.ends * PAD;
                    let (width, height) = (inner.width + 2 * PAD, end - y);
                    self.groups.push(GroupBox { name, x: x + at, y, width, height });
                    self.place(inner, x + at + PAD, rows);
                }
            }
        }
    }
}

/// The length of the longest path to each node.
fn ranks(plan: &Plan) -> Vec<usize> {
    let mut ranks: Vec<usize> = Vec::with_capacity(plan.len());
    for node in plan.nodes() {
        let before = node.after().iter().filter_map(|node| ranks.get(*node as usize));
        let rank = before.max().map_or(0, |rank| rank + 1);
        ranks.push(rank);
    }
    ranks
}

/// The members of a group, with their places from left to right.
struct Block {
    parts: Vec<(usize, Part)>,
    width: usize,
    /// The ranks of its nodes.
    first: usize,
    last: usize,
    /// The number of boxes, one in the other, that begin at its first rank: its own and those of inner groups.
    begins: usize,
    /// The number of those that end at its last rank.
    ends: usize,
}

enum Part {
    Node(usize),
    Group(String, Block),
}

impl Block {
    fn of_group(group: &Group, ranks: &[usize], node_width: usize) -> Self {
        let part = |member: &Member| match member {
            Member::Node(index) => Part::Node(*index),
            Member::Group(inner) => {
                Part::Group(inner.name.clone(), Self::of_group(inner, ranks, node_width))
            }
        };
        let parts: Vec<Part> = group.members.iter().map(part).collect();
        let first = parts.iter().map(|part| part.ranks(ranks).0).min().unwrap_or(0);
        let last = parts.iter().map(|part| part.ranks(ranks).1).max().unwrap_or(0);
        // The first free place in each rank, and the number of its members.
        let mut free = vec![0; last - first + 1];
        let mut members = vec![0; last - first + 1];
        let mut placed = Vec::with_capacity(parts.len());
        let (mut begins, mut ends) = (0, 0);
        for part in parts {
            let (from, to) = part.ranks(ranks);
            let free = &mut free[from - first..=to - first];
            let at = free.iter().copied().max().unwrap_or(0);
            free.fill(at + part.width(node_width) + GAP_X);
            members[from - first..=to - first].iter_mut().for_each(|count| *count += 1);
            if let Part::Group(_, inner) = &part {
                begins = begins.max(if from == first { inner.begins } else { 0 });
                ends = ends.max(if to == last { inner.ends } else { 0 });
            }
            placed.push((at, part));
        }
        let width = free.into_iter().max().unwrap_or(0).saturating_sub(GAP_X);
        // A member that has its ranks to itself is in the middle.
        for (at, part) in &mut placed {
            let (from, to) = part.ranks(ranks);
            if members[from - first..=to - first].iter().all(|count| *count == 1) {
                *at = (width - part.width(node_width)) / 2;
            }
        }
        Self { parts: placed, width, first, last, begins: begins + 1, ends: ends + 1 }
    }
}

impl Part {
    fn ranks(&self, ranks: &[usize]) -> (usize, usize) {
        match self {
            Part::Node(index) => (ranks[*index], ranks[*index]),
            Part::Group(_, inner) => (inner.first, inner.last),
        }
    }

    fn width(&self, node_width: usize) -> usize {
        match self {
            Part::Node(_) => node_width,
            Part::Group(_, inner) => inner.width + 2 * PAD,
        }
    }
}

/// The heights of the ranks.
struct Rows {
    /// The top of the nodes of each rank.
    y: Vec<usize>,
    end: usize,
}

impl Rows {
    fn new(ranks: &[usize], root: &Block, node_height: usize) -> Self {
        let count = ranks.iter().max().map_or(0, |rank| rank + 1);
        let (mut begins, mut ends) = (vec![0; count], vec![0; count]);
        boxes(root, &mut begins, &mut ends);
        let (mut y, mut top) = (Vec::with_capacity(count), MARGIN);
        for (begins, ends) in begins.into_iter().zip(ends) {
            y.push(top + begins * HEADER);
            top += begins * HEADER + node_height + ends * PAD + GAP_Y;
        }
        Self { y, end: if count == 0 { MARGIN } else { top - GAP_Y } }
    }
}

/// The largest number of boxes, one in the other, that begin and end at each rank.
fn boxes(block: &Block, begins: &mut [usize], ends: &mut [usize]) {
    for (_, part) in &block.parts {
        if let Part::Group(_, inner) = part {
            begins[inner.first] = begins[inner.first].max(inner.begins);
            ends[inner.last] = ends[inner.last].max(inner.ends);
            boxes(inner, begins, ends);
        }
    }
}

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
