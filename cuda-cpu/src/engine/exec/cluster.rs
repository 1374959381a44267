//! Clusters of one block: the cluster barrier and cluster addresses.

use super::suspend::suspended;
use crate::engine::ctx::{Ctx, LANES, lanes_of};
use crate::engine::fault::FaultKind;
use crate::engine::op::{Flow, Op, Slot};

/// `elect.sync`: elects the lowest participating lane. `Op::cache` is the predicate register.
pub(crate) fn complete_elect(ctx: &mut Ctx<'_>, op: &Op, participants: u32) {
    let leader = participants.trailing_zeros() & 31;
    ctx.write(op.d, ctx.mask, &[leader; LANES]);
    ctx.set_pred(Slot(op.cache), ctx.mask, 1 << leader);
}

/// `barrier.cluster.arrive`
pub(crate) fn arrive(ctx: &mut Ctx<'_>, _: &Op) -> Flow {
    let warp = ctx.team.warp;
    for lane in lanes_of(ctx.mask) {
        if !ctx.team.cluster.arrive(warp, lane) {
            return ctx.fail(lane, FaultKind::ClusterBarrier { arrived: true });
        }
    }
    ctx.team.moved += 1;
    Flow::Next
}

/// `barrier.cluster.wait`. Evaluates its guard itself. Waiting lanes jump to `Op::extra`.
pub(crate) fn wait(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (active, warp, live) = (ctx.guarded(op), ctx.team.warp, ctx.live);
    ctx.team.cluster.set_live(warp, live);
    if let Some(lane) = lanes_of(active).find(|&lane| !ctx.team.cluster.owes(warp, lane)) {
        return ctx.fail(lane, FaultKind::ClusterBarrier { arrived: false });
    }
    let done = lanes_of(active)
        .filter(|&lane| ctx.team.cluster.is_complete(warp, lane))
        .fold(0, |done, lane| done | 1 << lane);
    suspended(ctx, active & !done, op.extra)
}

/// `mapa`: maps an address to the block with rank `b`. Only rank 0 exists.
pub(crate) fn map_address<R: crate::engine::ctx::Raw>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let ranks = ctx.read::<u32>(op.b);
    if let Some(lane) = lanes_of(ctx.mask).find(|&lane| ranks[lane] != 0) {
        return ctx.fail(lane, FaultKind::NoSuchBlock { rank: ranks[lane] });
    }
    let addresses = ctx.read::<R>(op.a);
    ctx.write(op.d, ctx.mask, &addresses);
    Flow::Next
}
