//! Branches, guards, and ops for the scheduler.

use crate::fault::FaultKind;
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

/// Runs the inner handler for the lanes whose guard is true.
pub(crate) fn guarded(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let active = ctx.guarded(op);
    if active == 0 {
        return Flow::Next;
    }
    let all = std::mem::replace(&mut ctx.mask, active);
    // SAFETY: the running op belongs to the current frame.
    let flow = unsafe { (op.inner)(ctx, op) };
    ctx.mask = all;
    flow
}

/// `bra` without a guard. The target is in `imm`.
pub(crate) fn jump(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    ctx.target = op.imm as u32;
    Flow::Jump
}

/// `bra` with a guard.
pub(crate) fn branch(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let taken = ctx.guarded(op);
    if taken == ctx.mask {
        ctx.target = op.imm as u32;
        return Flow::Jump;
    }
    if taken == 0 {
        ctx.target = op.pc + 1;
        return Flow::Jump;
    }
    ctx.target = op.imm as u32;
    ctx.taken = taken;
    Flow::Diverge
}

/// Placed before a label. Stops the fragment if another fragment of the warp may be waiting to join it there.
pub(crate) fn join(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if ctx.merge_pc > op.pc + 1 {
        return Flow::Next;
    }
    ctx.target = op.pc + 1;
    Flow::Jump
}

/// Calls the scheduler.
pub(crate) fn control(_: &mut Ctx<'_>, _: &Op) -> Flow {
    Flow::Control
}

/// `trap`.
pub(crate) fn trap(ctx: &mut Ctx<'_>, _: &Op) -> Flow {
    let lane = ctx.mask.trailing_zeros() as usize & 31;
    ctx.fail(lane, FaultKind::Trap)
}

/// Fences. A block runs on one thread, and a fence orders its accesses with those of other blocks.
pub(crate) fn fence(_: &mut Ctx<'_>, _: &Op) -> Flow {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    Flow::Next
}

/// Does nothing.
pub(crate) fn nothing(_: &mut Ctx<'_>, _: &Op) -> Flow {
    Flow::Next
}

/// Placed before loads with which threads wait for others. See [`Ctx::charge_atomic`].
pub(crate) fn burn_fuel(ctx: &mut Ctx<'_>, _: &Op) -> Flow {
    ctx.charge_atomic();
    Flow::Next
}
