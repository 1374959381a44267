//! The graph of a folder, its layers and its rings.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

/// A file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The file's name, or the folder's name and a slash.
    pub name: String,
    /// Whether the node is a folder.
    pub folder: bool,
}

/// The first place where one node uses another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The file with the use.
    pub file: PathBuf,
    /// The line of the use, from 1.
    pub line: usize,
    /// The path of the item as it is written.
    pub path: String,
}

/// A ring: each node uses the next, and the last uses the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// The nodes of a shortest ring, each with its use of the next.
    pub steps: Vec<(Node, Edge)>,
    /// Other nodes of the same strongly connected component.
    pub others: Vec<Node>,
    /// Whether the ring fails the check: it is not a pair of files.
    pub fault: bool,
}

/// The files and folders of one folder, with the uses between them.
pub(crate) struct Graph {
    pub(crate) path: PathBuf,
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: BTreeMap<(usize, usize), Edge>,
}

impl Graph {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, nodes: Vec::new(), edges: BTreeMap::new() }
    }

    /// Returns the nodes by layer, lowest first. A node uses only nodes of lower layers and nodes on a ring with it.
    pub(crate) fn layers(&self) -> Vec<Vec<usize>> {
        let reach = self.reach();
        let mut layers: Vec<Vec<usize>> = Vec::new();
        let mut left: Vec<usize> = (0..self.nodes.len()).collect();
        while !left.is_empty() {
            let (layer, rest) =
                left.iter().partition(|a| left.iter().all(|b| !reach[**a][*b] || reach[*b][**a]));
            (left, _) = (rest, layers.push(layer));
        }
        layers
    }

    /// Returns one ring for each set of nodes that use each other.
    pub(crate) fn rings(&self) -> Vec<Ring> {
        let reach = self.reach();
        let mut rings = Vec::new();
        for (a, reached) in reach.iter().enumerate() {
            let same = |b: &usize| reached[*b] && reach[*b][a];
            let members: Vec<usize> = (0..reach.len()).filter(same).collect();
            if members.len() > 1 && members.first() == Some(&a) {
                rings.extend(self.ring(&members));
            }
        }
        rings
    }

    /// Returns the ring to report for `members`, which all reach each other.
    fn ring(&self, members: &[usize]) -> Option<Ring> {
        let folders: Vec<usize> =
            members.iter().copied().filter(|member| self.nodes[*member].folder).collect();
        // The reported ring must contain the fault.
        let (starts, least) = match (folders.is_empty(), members.len()) {
            (false, _) => (&folders[..], 2),
            (true, 2) => (members, 2),
            (true, _) => (members, 3),
        };
        let shortest = |least: usize| {
            let rings = starts.iter().filter_map(|start| self.ring_from(*start, least));
            rings.min_by_key(Vec::len)
        };
        let (nodes, fault) = match shortest(least) {
            Some(nodes) => (nodes, !folders.is_empty() || members.len() > 2),
            // Pairs that share a file.
            None => (shortest(2)?, true),
        };
        let mut steps = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            let next = nodes[(i + 1) % nodes.len()];
            steps.push((self.nodes[*node].clone(), self.edges.get(&(*node, next))?.clone()));
        }
        let others = members.iter().filter(|member| !nodes.contains(member));
        let others = others.map(|member| self.nodes[*member].clone()).collect();
        Some(Ring { steps, others, fault })
    }

    /// Returns a shortest ring of at least `least` (2 or 3) nodes that begins with an edge from `start`.
    fn ring_from(&self, start: usize, least: usize) -> Option<Vec<usize>> {
        let paths = self.next(start).filter_map(|second| {
            let skip = (least > 2).then_some((second, start));
            let mut ring = self.shortest(second, start, skip)?;
            ring.rotate_right(1);
            Some(ring)
        });
        paths.min_by_key(Vec::len)
    }

    fn next(&self, node: usize) -> impl Iterator<Item = usize> {
        self.edges.range((node, 0)..(node + 1, 0)).map(|((_, to), _)| *to)
    }

    /// Returns the nodes on a shortest path that does not use the edge `skip`.
    fn shortest(&self, from: usize, to: usize, skip: Option<(usize, usize)>) -> Option<Vec<usize>> {
        let mut before = BTreeMap::from([(from, from)]);
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                let step = |node: &usize| before.get(node).copied().filter(|_| *node != from);
                let mut path: Vec<usize> = std::iter::successors(Some(to), step).collect();
                path.reverse();
                return Some(path);
            }
            for next in self.next(node).filter(|next| Some((node, *next)) != skip) {
                before.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    node
                });
            }
        }
        None
    }

    /// Returns the transitive closure: whether each node reaches each other node.
    fn reach(&self) -> Vec<Vec<bool>> {
        let count = self.nodes.len();
        let mut reach = vec![vec![false; count]; count];
        for (start, reached) in reach.iter_mut().enumerate() {
            let mut stack = vec![start];
            while let Some(node) = stack.pop() {
                if !std::mem::replace(&mut reached[node], true) {
                    stack.extend(self.next(node));
                }
            }
        }
        reach
    }
}
