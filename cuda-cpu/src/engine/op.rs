//! A decoded instruction.

use super::ctx::Ctx;

/// A register, as a byte offset into the frame of its function. Only the frame layout creates slots, so each one is in
/// bounds and aligned for its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// The absence of a register.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// Width of a register's lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// One bit per lane, in one `u32`.
    Pred,
    /// `[u32; 32]`: for values of up to 32 bits.
    W32,
    /// `[u64; 32]`.
    W64,
}

/// Control flow after a handler, for the dispatch loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Continue with the next instruction.
    Next,
    /// Continue at `ctx.target`.
    Jump,
    /// The lanes in `ctx.taken` continue at `ctx.target`, the others with the next instruction.
    Diverge,
    /// Call the scheduler: calls, returns, exits, barriers, and collectives that must wait.
    Control,
    /// `ctx.fault` contains the fault.
    Fault,
}

/// A handler. It may be called if `op` belongs to the function whose frame `ctx` has entered.
pub(crate) type Handler = unsafe fn(&mut Ctx<'_>, &Op) -> Flow;

/// A decoded instruction: a handler and its operands. The handler defines the meaning of the fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op {
    pub(crate) run: Handler,
    /// The handler without the guard. `run` may be the wrapper that evaluates the guard.
    pub(crate) inner: Handler,
    pub(crate) d: Slot,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    /// An offset, a mode, or a jump target.
    pub(crate) imm: u64,
    /// Index of the first further operand in `Code::extras`, or an index into `Code::controls`.
    pub(crate) extra: u32,
    /// Index of this instruction's allocation cache.
    pub(crate) cache: u32,
    pub(crate) guard: Slot,
    pub(crate) guard_negated: bool,
    /// Index of this op in `Code::ops`.
    pub(crate) pc: u32,
}

impl Op {
    pub(crate) fn new(run: Handler) -> Self {
        Self {
            run,
            inner: run,
            d: Slot::NONE,
            a: Slot::NONE,
            b: Slot::NONE,
            c: Slot::NONE,
            imm: 0,
            extra: 0,
            cache: 0,
            guard: Slot::NONE,
            guard_negated: false,
            pc: 0,
        }
    }
}
