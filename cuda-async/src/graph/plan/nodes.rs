//! `Plan`: nodes, edges, and the tree of names, in which every name is a group inside the group of the name before its
//! last `/`. `PlanExt` makes the plan of an operation.

use std::{collections::HashMap, sync::Arc, time::Duration};

use cuda_core::{
    Device, Result,
    internals::{RecordedNode, Recording, end_plan, start_plan},
    protocol::Work,
};

use crate::{graph::plan::text::printable, ops::DeviceOp, run::blocking, runtime};

/// The work of an operation or a graph: its nodes in an order in which they can run, and the edges between them.
///
/// [`PlanExt::plan`](crate::graph::PlanExt::plan) makes one of an operation, and
/// [`CudaGraph::plan`](crate::graph::CudaGraph::plan) one of a graph. [`to_svg`](Self::to_svg),
/// [`to_dot`](Self::to_dot) and [`to_mermaid`](Self::to_mermaid) draw it; `{plan}` prints it as text. The same work
/// gives the same text.
///
/// ```
/// use cuda_async::{graph::PlanExt, memory::fill, prelude::*};
/// let plan = zeros::<u32>(4).named("clear").then(|x| fill(x, 7)).plan()?;
/// assert_eq!((plan.len(), plan.edges()), (2, 1));
/// assert_eq!(plan.nodes()[0].name(), Some("clear"));
/// assert_eq!(plan.nodes()[1].after(), [0]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    nodes: Vec<PlanNode>,
}

/// A node of a [`Plan`].
///
/// ```
/// use cuda_async::{graph::PlanExt, prelude::*};
/// let plan = zip!(zeros::<u8>(4), zeros::<u8>(8).named("large")).plan()?;
/// let join = &plan.nodes()[2];
/// assert_eq!((join.after(), join.name(), join.time()), (&[0, 1][..], None, None));
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct PlanNode {
    work: PlanWork,
    after: Vec<u32>,
    name: Option<Arc<str>>,
    time: Option<Duration>,
}

/// The work of a [`PlanNode`].
///
/// ```
/// use cuda_async::{graph::{PlanExt, PlanWork}, memory::fill, prelude::*};
/// let plan = zeros::<u32>(4).then(|x| fill(x, 7)).plan()?;
/// let filled = plan.nodes().iter().map(|node| match node.work() {
///     PlanWork::Fill { bytes } => *bytes,
///     _ => 0,
/// });
/// assert_eq!(filled.sum::<u64>(), 32);
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanWork {
    /// Joins branches, and does nothing else.
    Join,
    /// Copies host memory to the device.
    Upload {
        /// The number of bytes.
        bytes: u64,
    },
    /// Copies device memory.
    Copy {
        /// The number of bytes.
        bytes: u64,
    },
    /// Fills device memory with a value.
    Fill {
        /// The number of bytes.
        bytes: u64,
    },
    /// Writes the time of the device.
    Timestamp,
    /// Runs a kernel.
    Launch {
        /// The name of the kernel.
        kernel: Arc<str>,
        /// The number of blocks in x, y and z.
        grid: [u32; 3],
        /// The number of threads of a block in x, y and z.
        block: [u32; 3],
        /// The bytes of dynamic shared memory of a block.
        shared_bytes: u32,
    },
    /// Repeats work on the device.
    Loop {
        /// The number of nodes of one pass.
        nodes: usize,
    },
    /// Other work.
    Other,
}

impl Plan {
    pub(crate) fn of_nodes(nodes: Vec<RecordedNode>) -> Self {
        Self { nodes: nodes.into_iter().map(PlanNode::of).collect() }
    }

    /// Adds a time to each node.
    pub(crate) fn with_times(mut self, times: &[Duration]) -> Self {
        for (node, time) in self.nodes.iter_mut().zip(times) {
            node.time = Some(*time);
        }
        self
    }

    /// Returns the nodes, in an order in which they can run.
    pub fn nodes(&self) -> &[PlanNode] {
        &self.nodes
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of edges.
    pub fn edges(&self) -> usize {
        self.nodes.iter().map(|node| node.after.len()).sum()
    }
}

impl From<&Recording> for Plan {
    fn from(recording: &Recording) -> Self {
        Self::of_nodes(recording.nodes())
    }
}

impl PlanNode {
    fn of(node: RecordedNode) -> Self {
        let RecordedNode { work, after, name, kernel } = node;
        Self { work: PlanWork::of(&work, kernel), after, name, time: None }
    }

    /// Returns the work.
    pub fn work(&self) -> &PlanWork {
        &self.work
    }

    /// Returns the indices of the nodes that come directly before this one, in ascending order. All are smaller than
    /// that of this node.
    pub fn after(&self) -> &[u32] {
        &self.after
    }

    /// Returns the names of the operations that the node belongs to, outermost first, separated by `/`. `None` if none
    /// of them is [named](crate::DeviceOp::named).
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the device time of the node, if the plan belongs to a [`Profile`](crate::graph::Profile).
    pub fn time(&self) -> Option<Duration> {
        self.time
    }
}

impl PlanWork {
    fn of(work: &Work<'_>, kernel: Option<Arc<str>>) -> Self {
        match work {
            Work::Join => Self::Join,
            Work::Upload { bytes, .. } => Self::Upload { bytes: *bytes },
            Work::Copy { bytes, .. } => Self::Copy { bytes: *bytes },
            Work::Fill { pattern, count, .. } => {
                Self::Fill { bytes: count.saturating_mul(pattern.bytes()) }
            }
            Work::Timestamp { .. } => Self::Timestamp,
            Work::Launch(launch) => Self::Launch {
                kernel: kernel.unwrap_or_else(|| "a kernel".into()),
                grid: launch.config.grid,
                block: launch.config.block,
                shared_bytes: launch.config.shared_bytes,
            },
            Work::Repeat(repeat) => Self::Loop { nodes: repeat.body.nodes.len() },
            _ => Self::Other,
        }
    }
}

/// Methods that show the work of an operation.
pub trait PlanExt: DeviceOp {
    /// Returns the work that this operation would submit to the default device. Nothing runs on the device, and memory
    /// that the operation allocates does not exist there. The closures of the operation run once, now.
    ///
    /// - Kernels belong to a device: use [`plan_on`](Self::plan_on) with the device of their modules, if it is not the
    ///   default one.
    /// - Uploads copy their bytes to pinned host memory, as those of a [graph](crate::graph::GraphExt::graph) do. So
    ///   this call may block while the driver pins memory.
    /// - A [`shared`](DeviceOp::shared) operation that first runs here has no result, so its clones return an error
    ///   outside the plan.
    ///
    /// ```
    /// use cuda_async::{graph::PlanExt, memory::fill, prelude::*};
    /// let both = zip!(zeros::<u32>(4), zeros::<u8>(8)).named("clear");
    /// let plan = both.then(|(a, _)| fill(a, 7)).plan()?;
    /// println!("{plan}");
    /// assert!(plan.to_dot().contains("label=\"clear\""));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`graph`](crate::graph::GraphExt::graph).
    fn plan(self) -> Result<Plan> {
        self.plan_on(&runtime::default_device()?)
    }

    /// Returns the work that this operation would submit to `device`; see [`plan`](Self::plan).
    ///
    /// ```
    /// use cuda_async::{graph::PlanExt, prelude::*};
    /// let plan = zeros::<u8>(1 << 50).plan_on(&cuda_async::open_blocking("cpu")?)?; // the memory does not exist
    /// assert_eq!(plan.len(), 1);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`graph`](crate::graph::GraphExt::graph).
    fn plan_on(self, device: &Device) -> Result<Plan> {
        let stream = start_plan(device);
        let output = blocking::submit_only(self.into_op().into_steps(), stream.clone())?;
        drop(output);
        Ok(Plan::of_nodes(end_plan(&stream)?))
    }
}

impl<O: DeviceOp> PlanExt for O {}

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
    walk_members(&tree_of(plan), 0, &mut 0, &mut visit);
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
pub(super) fn tree_of(plan: &Plan) -> Group {
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
