//! The end of a window: how often the window came, whether a graph of it pays, and the graph.

use std::sync::Arc;

use super::{measure::Measure, tree::StepId};
use crate::cuda::graphs::GraphSlot;

/// How often a window has to come before it is measured.
pub(super) const LEARN: u32 = 8;

/// How often a graph is launched before its window is measured again: its kernels may have more to do by then.
pub(super) const MEASURE_EVERY: u32 = 4096;

/// The end of a window.
pub(super) struct End {
    /// The last step.
    pub(super) step: StepId,
    /// Whether the window is counted in the `held` of its steps.
    pub(super) is_held: bool,
    /// How often the window has come without being held.
    pub(super) seen: u32,
    /// The value of `seen` at which it is measured.
    pub(super) due: u32,
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
    /// The time of the last launch, in flushes of the backend.
    pub(super) used: u64,
}

impl End {
    pub(super) fn new(step: StepId) -> Self {
        Self { step, is_held: false, seen: 0, due: LEARN, measure: None, graph: None }
    }

    /// The window came again without being held. Returns whether it is to be measured from now on.
    pub(super) fn is_due(&mut self) -> bool {
        self.seen = self.seen.saturating_add(1);
        self.seen >= self.due && self.graph.is_none()
    }

    /// The graph was dropped to make room for others. The window is learned again.
    pub(super) fn evict(&mut self) {
        (self.measure, self.graph) = (None, None);
        self.due = self.seen.saturating_add(LEARN);
    }

    /// A graph does not pay, or cannot be built. The window is measured again when it has come eight times as often.
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
