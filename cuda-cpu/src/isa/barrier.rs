//! The operands of the barriers of a block.

use super::slot::Slot;

/// The operands of a barrier instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Barrier {
    /// Number of the barrier, 0 to 15, in a 32-bit register.
    pub(crate) id: Slot,
    /// Thread count in a 32-bit register. `Slot::NONE` means all threads of the block.
    pub(crate) threads: Slot,
    pub(crate) kind: BarrierKind,
    /// Whether all lanes of a warp must execute it together.
    pub(crate) aligned: bool,
    /// Whether the barrier number and the thread count are immediate, so that they are the same for all lanes.
    pub(crate) constant: bool,
}

/// The variant of a barrier instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// `bar.red`: takes a predicate and returns the reduction.
    Reduce {
        how: Reduce,
        input: Slot,
        negated: bool,
        output: Slot,
    },
}

/// The reduction of `bar.red`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduce {
    Popc,
    And,
    Or,
}
