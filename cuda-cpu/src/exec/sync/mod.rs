//! Instructions that wait for other threads or for copies: mbarriers, asynchronous copies and reductions, and the
//! barrier of a cluster, with cluster addresses.
//!
//! A copy waits in `machine` until [`transfer`] performs it. `decode::sync` selects the handlers. Uses `memory`.
//!
//! An instruction that may have to wait is decoded into four ops (see `decode::sync`): a jump to the test, a pause, an
//! [`again`] op, and the test. Lanes that must wait jump to the pause, others run, and then the lanes repeat the test.

pub(crate) mod async_copy;
pub(crate) mod barrier_word;
pub(crate) mod cluster;
pub(crate) mod mbarrier;
pub(crate) mod transfer;

use crate::isa::operand::Slot;
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
