//! A decoded instruction.

use super::ctx::Ctx;

/// Where a register lies: a byte offset into its function's frame. Only the frame layout makes
/// these, so each is in bounds and aligned for the class it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// No register.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// How wide a register's lanes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// One bit per lane, in one `u32`.
    Pred,
    /// `[u32; 32]`: everything up to 32 bits.
    W32,
    /// `[u64; 32]`.
    W64,
}

/// What a handler tells the dispatch loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Go on with the next instruction.
    Next,
    /// Go on at `ctx.target`.
    Jump,
    /// `ctx.taken` go to `ctx.target`, the others to the next instruction.
    Diverge,
    /// Ask the scheduler: calls, returns, exits, barriers, collectives that must wait.
    Control,
    /// `ctx.fault` says why.
    Fault,
}

/// A handler. Safe to call when `op` belongs to the function whose frame `ctx` has entered.
pub(crate) type Handler = unsafe fn(&mut Ctx<'_>, &Op) -> Flow;

/// A decoded instruction: the handler and what it works on. What the fields mean beyond their
/// names is up to the handler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op {
    pub(crate) run: Handler,
    /// The handler proper: `run` may be the guard's wrapper.
    pub(crate) inner: Handler,
    pub(crate) d: Slot,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    /// Offset, mode, target.
    pub(crate) imm: u64,
    /// First of further operands in `Code::extras`, or an index into `Code::controls`.
    pub(crate) extra: u32,
    /// Index of this instruction's allocation cache.
    pub(crate) cache: u32,
    pub(crate) guard: Slot,
    pub(crate) guard_negated: bool,
    /// Its own index.
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
