//! Loops: nodes of a graph that a device repeats.

use std::sync::Arc;

use super::{Access, Graph, Region, Use};

/// The size of the condition of a loop in bytes: a `u32`.
pub const CONDITION_BYTES: u64 = 4;

/// A loop inside a graph. The device reads a word of its memory before each pass. If the word is 0, the loop ends.
/// Otherwise the device runs the nodes of the body, each after those that its `after` names.
#[derive(Debug, Clone, PartialEq)]
pub struct Repeat {
    /// The word, a `u32`. The body may write it.
    pub condition: Region,
    /// The nodes of one pass.
    pub body: Arc<Graph>,
    /// The memory that the body uses: one operand for each allocation, with its strongest access.
    pub uses: Arc<[Use]>,
}

impl Repeat {
    /// Calls `each` with every operand on the device.
    pub(super) fn uses(&self, mut each: impl FnMut(Use)) {
        each(self.condition.used(CONDITION_BYTES, Access::Read));
        self.uses.iter().cloned().for_each(each);
    }
}
