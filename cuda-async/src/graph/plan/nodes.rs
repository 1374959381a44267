//! `Plan`: nodes, edges and names.

use std::{sync::Arc, time::Duration};

use cuda_core::{
    internals::{RecordedNode, Recording},
    protocol::Work,
};

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
