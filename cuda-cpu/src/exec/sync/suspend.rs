//! Suspension of threads until an event in their block.
//!
//! An instruction that may have to wait is decoded into four ops (see `decode::sync::suspend`): a jump to the test, a pause,
//! an `again` op, and the test. Lanes that must wait jump to the pause, others run, and then the lanes repeat the test.

use crate::isa::slot::Slot;
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

/// Ends a test. The lanes in `waiting` jump to the pause at `wait`.
pub(crate) fn suspended(ctx: &mut Ctx<'_>, waiting: u32, wait: u32) -> Flow {
    if waiting == 0 {
        ctx.team.moved += 1;
        return Flow::Next;
    }
    ctx.target = wait;
    if waiting == ctx.mask {
        return Flow::Jump;
    }
    ctx.team.moved += 1;
    ctx.taken = waiting;
    Flow::Diverge
}

/// Runs after the pause. If no thread of the block can continue, a wait that may fail does so: the predicate in `d`
/// becomes false, and the lanes continue behind the test, at `Op::extra`. Without a predicate, the test is repeated.
pub(crate) fn again(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if !ctx.team.expired || op.d == Slot::NONE {
        return Flow::Next;
    }
    ctx.set_pred(op.d, ctx.mask, 0);
    ctx.target = op.extra;
    Flow::Jump
}
