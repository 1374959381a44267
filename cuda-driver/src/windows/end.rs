//! The end of a window: its count, its measurement and its graph.

use std::sync::Arc;

use super::{measure::Measure, tree::StepId};
use crate::graphs::GraphSlot;

/// The number of times that a window comes before it is measured.
pub(super) const LEARN: u32 = 8;

/// The number of launches of a graph before its window is measured again. By then its kernels may have more to do.
pub(super) const MEASURE_EVERY: u32 = 4096;

/// The end of a window.
pub(super) struct End {
    /// The last step.
    pub(super) step: StepId,
    /// Whether the window is counted in the `held` of its steps.
    pub(super) is_held: bool,
    /// The number of times that the window came without being held.
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
    /// The time of the last launch, in flushes of the stream.
    pub(super) used: u64,
}

impl End {
    pub(super) fn new(step: StepId) -> Self {
        Self { step, is_held: false, seen: 0, due: LEARN, measure: None, graph: None }
    }

    /// Counts the window, which came again without being held. Returns whether it is measured from now on.
    pub(super) fn is_due(&mut self) -> bool {
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
