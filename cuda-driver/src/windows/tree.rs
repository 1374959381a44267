//! The windows that a stream knows, as a tree: windows that begin with the same shapes share their first steps. Each
//! window has an end, with its count, its measurement and its graph.

use std::sync::Arc;

use cuda_core::protocol::{FunctionId, LaunchAttributes, ModuleId, Work};

use super::measure::Measure;
use crate::graphs::{DriverNode, GraphSlot};

/// The number of steps that the tree of a stream can have: about 1 MiB.
const MAX_STEPS: usize = 4096;

/// The number of times that a window comes before it is measured.
const LEARN: u32 = 8;

/// The number of launches of a graph before its window is measured again. By then its kernels may have more to do.
pub(super) const MEASURE_EVERY: u32 = 4096;

/// A step of a tree. The first one is the root, which stands for no node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepId(u32);

pub(super) const ROOT: StepId = StepId(0);

/// Names the end of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EndId(u32);

/// The part of work that a graph cannot change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The attributes cannot be changed in an executable.
    Launch(FunctionId, LaunchAttributes),
    Copy,
    /// A fill with elements of this many bytes.
    Fill(u64),
}

impl Shape {
    /// The shape of work that a window can hold.
    #[inline]
    pub(crate) fn of(work: &Work<'_>) -> Option<Self> {
        match work {
            // A dependent launch overlaps with the kernel before it only outside of a graph.
            Work::Launch(launch) if launch.config.attributes.is_dependent() => None,
            Work::Launch(launch) => Some(Self::Launch(launch.function, launch.config.attributes)),
            Work::Copy { bytes: 1.., .. } => Some(Self::Copy),
            Work::Fill { pattern, count: 1.., .. } => Some(Self::Fill(pattern.bytes())),
            _ => None,
        }
    }

    fn function(self) -> Option<FunctionId> {
        match self {
            Self::Launch(function, _) => Some(function),
            Self::Copy | Self::Fill(_) => None,
        }
    }

    fn module(self) -> Option<ModuleId> {
        self.function().map(|function| function.module)
    }
}

/// The steps, and the ends of windows. They are never removed one by one.
pub(super) struct Tree {
    steps: Vec<Step>,
    ends: Vec<End>,
}

struct Step {
    shape: Shape,
    /// The node that was held here last.
    node: DriverNode,
    /// Changes with the node.
    version: u64,
    parent: StepId,
    /// The children are a list through `sibling`. The one that came last is the first.
    child: Option<StepId>,
    sibling: Option<StepId>,
    /// The number of windows that are held and go through this step.
    held: u32,
    end: Option<EndId>,
}

impl Step {
    fn new(shape: Shape, parent: StepId, sibling: Option<StepId>) -> Self {
        let (node, version) = (DriverNode::Empty, 0);
        Self { shape, node, version, parent, child: None, sibling, held: 0, end: None }
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self { steps: vec![Step::new(Shape::Copy, ROOT, None)], ends: Vec::new() }
    }
}

impl Tree {
    fn step(&self, id: StepId) -> &Step {
        &self.steps[id.0 as usize]
    }

    fn step_mut(&mut self, id: StepId) -> &mut Step {
        &mut self.steps[id.0 as usize]
    }

    /// The child of a step with this shape.
    #[inline]
    pub(super) fn child(&mut self, of: StepId, shape: Shape) -> Option<StepId> {
        let first = self.step(of).child?;
        if self.step(first).shape == shape {
            return Some(first);
        }
        self.later_child(of, first, shape)
    }

    /// Finds a child that is not the first one, and makes it the first.
    fn later_child(&mut self, of: StepId, first: StepId, shape: Shape) -> Option<StepId> {
        let mut before = first;
        loop {
            let next = self.step(before).sibling?;
            if self.step(next).shape == shape {
                self.step_mut(before).sibling = self.step(next).sibling;
                self.step_mut(next).sibling = Some(first);
                self.step_mut(of).child = Some(next);
                return Some(next);
            }
            before = next;
        }
    }

    /// Adds a child. `None` if the tree is full.
    pub(super) fn grow(&mut self, of: StepId, shape: Shape) -> Option<StepId> {
        if self.steps.len() >= MAX_STEPS {
            return None;
        }
        let id = StepId(self.steps.len() as u32);
        let sibling = self.step(of).child;
        self.steps.push(Step::new(shape, of, sibling));
        self.step_mut(of).child = Some(id);
        Some(id)
    }

    /// Whether a window that is held goes through this step.
    #[inline]
    pub(super) fn is_held(&self, id: StepId) -> bool {
        self.step(id).held > 0
    }

    /// Stores the node of a step, and gives it a new version if it differs from the one before.
    #[inline]
    pub(super) fn set_node(&mut self, id: StepId, node: DriverNode, version: u64) {
        let step = self.step_mut(id);
        if step.node != node {
            step.node = node;
            step.version = version;
        }
    }

    /// The node of a step, and its version.
    #[inline]
    pub(super) fn node(&self, id: StepId) -> (&DriverNode, u64) {
        let step = self.step(id);
        (&step.node, step.version)
    }

    /// The window that ends at a step. Made when it is first asked for.
    pub(super) fn end_at(&mut self, id: StepId) -> EndId {
        if let Some(end) = self.step(id).end {
            return end;
        }
        let end = EndId(self.ends.len() as u32);
        self.ends.push(End::new(id));
        self.step_mut(id).end = Some(end);
        end
    }

    pub(super) fn end_mut(&mut self, id: EndId) -> &mut End {
        &mut self.ends[id.0 as usize]
    }

    pub(super) fn ends(&mut self) -> impl Iterator<Item = (EndId, &mut End)> {
        self.ends.iter_mut().enumerate().map(|(at, end)| (EndId(at as u32), end))
    }

    /// Holds the nodes of a window from now on, or no longer.
    pub(super) fn set_held(&mut self, id: EndId, held: bool) {
        let end = self.end_mut(id);
        if std::mem::replace(&mut end.is_held, held) == held {
            return;
        }
        let mut at = end.step;
        while at != ROOT {
            let step = self.step_mut(at);
            step.held = if held { step.held + 1 } else { step.held.saturating_sub(1) };
            at = step.parent;
        }
    }

    /// The function that a step launches.
    pub(super) fn function(&self, id: StepId) -> Option<FunctionId> {
        self.step(id).shape.function()
    }

    /// The modules of the launches on a path.
    pub(super) fn modules(&self, path: &[StepId]) -> Vec<ModuleId> {
        path.iter().filter_map(|step| self.step(*step).shape.module()).collect()
    }

    /// Whether any step is a launch of a kernel of this module.
    pub(super) fn launches_module(&self, module: ModuleId) -> bool {
        self.steps.iter().any(|step| step.shape.module() == Some(module))
    }
}

/// The end of a window.
pub(super) struct End {
    /// The last step.
    step: StepId,
    /// Whether the window is counted in the `held` of its steps.
    is_held: bool,
    /// The number of times that the window came without being held.
    seen: u32,
    /// The value of `seen` at which it is measured.
    due: u32,
    /// The measurement that runs.
    pub(super) measure: Option<Measure>,
    pub(super) graph: Option<CachedGraph>,
}

/// A graph of the cache.
pub(super) struct CachedGraph {
    pub(super) slot: Arc<GraphSlot>,
    /// Whether the helper thread is known to have built it.
    pub(super) is_ready: bool,
    /// The version of each node that the executable has.
    pub(super) applied: Vec<u64>,
    pub(super) launches: u32,
    /// The time of the last launch, in flushes of the stream.
    pub(super) used: u64,
}

impl End {
    fn new(step: StepId) -> Self {
        Self { step, is_held: false, seen: 0, due: LEARN, measure: None, graph: None }
    }

    /// Counts the window, which came again, unless it is held. Returns whether it is measured from now on.
    pub(super) fn is_due(&mut self) -> bool {
        if self.is_held {
            return false;
        }
        self.seen = self.seen.saturating_add(1);
        self.seen >= self.due && self.graph.is_none()
    }

    /// Forgets the graph, which was dropped to make room for others. The window is learned again.
    pub(super) fn evict(&mut self) {
        (self.measure, self.graph) = (None, None);
        self.due = self.seen.saturating_add(LEARN);
    }

    /// Forgets the graph, which does not pay or cannot be built. The window is measured again when it has come eight
    /// times as often.
    pub(super) fn refuse(&mut self) {
        (self.measure, self.graph) = (None, None);
        self.due = self.seen.max(LEARN).saturating_mul(8);
    }
}

impl CachedGraph {
    pub(super) fn nodes(&self) -> usize {
        self.applied.len()
    }
}
