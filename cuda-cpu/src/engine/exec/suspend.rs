//! Threads that are suspended until something happens in their block.
//!
//! An instruction that may have to wait is decoded to (`decode::suspend`): a jump to the look, a pause, an `again`,
//! the look. Lanes that have to wait go to the pause: others have a turn, and then they look again.

use crate::engine::ctx::Ctx;
use crate::engine::op::{Flow, Op, Slot};

/// How a look ends: these lanes go to the pause at `wait`.
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

/// After the pause. When nobody of the block can go on, a wait that may fail does: the predicate in `d` (if there is
/// one) becomes false, and the lanes go on behind the look, at `Op::extra`.
pub(crate) fn again(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if !ctx.team.expired || op.d == Slot::NONE {
        return Flow::Next;
    }
    ctx.set_pred(op.d, ctx.mask, 0);
    ctx.target = op.extra;
    Flow::Jump
}
