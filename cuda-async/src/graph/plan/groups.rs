//! The tree of names: every name is a group inside the group of the name before its last `/`.

use std::collections::HashMap;

use crate::graph::plan::{label::printable, nodes::Plan};

/// The depth of the tree. Deeper names are groups of the last level.
const MAX_DEPTH: usize = 16;

/// A group of nodes that have a name in common. The root has none.
#[derive(Default)]
pub(super) struct Group {
    /// The last part of its name.
    pub(super) name: String,
    /// The groups and the nodes in it, ordered by their first node.
    pub(super) members: Vec<Member>,
}

pub(super) enum Member {
    /// The index of a node.
    Node(usize),
    Group(Group),
}

/// A step of a walk through the tree.
pub(super) enum Step<'a> {
    /// The index of a node.
    Node(usize),
    /// A group begins. Groups are numbered in the order of the walk.
    Begin { number: usize, name: &'a str },
    /// The group that began last, of those that did not end, ends.
    End,
}

/// Walks through the tree of a plan, in order. `visit` also gets the number of groups around the step.
pub(super) fn walk(plan: &Plan, mut visit: impl FnMut(usize, Step<'_>)) {
    walk_members(&of(plan), 0, &mut 0, &mut visit);
}

/// Recursion is limited by `MAX_DEPTH`.
fn walk_members(
    group: &Group,
    depth: usize,
    groups: &mut usize,
    visit: &mut impl FnMut(usize, Step<'_>),
) {
    for member in &group.members {
        match member {
            Member::Node(index) => visit(depth, Step::Node(*index)),
            Member::Group(inner) => {
                visit(depth, Step::Begin { number: *groups, name: &inner.name });
                *groups += 1;
                walk_members(inner, depth + 1, groups, visit);
                visit(depth, Step::End);
            }
        }
    }
}

/// Builds the tree of a plan. Nodes with equal names are in one group.
pub(super) fn of(plan: &Plan) -> Group {
    let mut builder = Builder::default();
    builder.groups.push(Flat::default());
    for (index, node) in plan.nodes().iter().enumerate() {
        let parts = node.name().into_iter().flat_map(|name| name.splitn(MAX_DEPTH, '/'));
        let group = parts.fold(0, |outer, part| builder.inner(outer, part));
        builder.groups[group].members.push(FlatMember::Node(index));
    }
    builder.take_tree(0)
}

/// The groups in a list, while the tree is built.
#[derive(Default)]
struct Builder {
    groups: Vec<Flat>,
    /// By outer group and name.
    known: HashMap<(usize, String), usize>,
}

#[derive(Default)]
struct Flat {
    name: String,
    members: Vec<FlatMember>,
}

enum FlatMember {
    Node(usize),
    Group(usize),
}

impl Builder {
    /// The group with this name inside another one.
    fn inner(&mut self, outer: usize, name: &str) -> usize {
        let key = (outer, name.to_owned());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let group = self.groups.len();
        self.groups.push(Flat { name: printable(name), members: Vec::new() });
        self.groups[outer].members.push(FlatMember::Group(group));
        self.known.insert(key, group);
        group
    }

    /// The tree below a group. Recursion is limited by `MAX_DEPTH`.
    fn take_tree(&mut self, group: usize) -> Group {
        let Flat { name, members } = std::mem::take(&mut self.groups[group]);
        let tree = |member| match member {
            FlatMember::Node(index) => Member::Node(index),
            FlatMember::Group(inner) => Member::Group(self.take_tree(inner)),
        };
        Group { name, members: members.into_iter().map(tree).collect() }
    }
}
