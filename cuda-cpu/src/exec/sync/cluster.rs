//! Clusters: the cluster barrier and cluster addresses.

use super::suspended;
use crate::fault::FaultKind;
use crate::isa::address::{block_of, in_block};
use crate::lanes::lanes_of;
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::{Ctx, Raw};

/// `barrier.cluster.arrive`
pub(crate) fn arrive(ctx: &mut Ctx<'_>, _: &Op) -> Flow {
    let warp = ctx.team.warp_in_cluster();
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
    let (active, warp, live) = (ctx.guarded(op), ctx.team.warp_in_cluster(), ctx.live);
    ctx.team.cluster.set_live(warp, live);
    if let Some(lane) = lanes_of(active).find(|&lane| !ctx.team.cluster.owes(warp, lane)) {
        return ctx.fail(lane, FaultKind::ClusterBarrier { arrived: false });
    }
    let done = lanes_of(active)
        .filter(|&lane| ctx.team.cluster.is_complete(warp, lane))
        .fold(0, |done, lane| done | 1 << lane);
    suspended(ctx, active & !done, op.extra)
}

/// `mapa`: maps an address to the block with rank `b`.
pub(crate) fn map_address<R: ClusterAddress>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let ranks = ctx.read::<u32>(op.b);
    let blocks = ctx.place.cluster_size();
    if let Some(lane) = lanes_of(ctx.mask).find(|&lane| ranks[lane] >= blocks) {
        return ctx.fail(lane, FaultKind::NoSuchBlock { rank: ranks[lane], blocks });
    }
    let mut addresses = ctx.read::<R>(op.a);
    if blocks > 1 {
        for lane in lanes_of(ctx.mask) {
            addresses[lane] = addresses[lane].in_block(ranks[lane]);
        }
    }
    ctx.write(op.d, ctx.mask, &addresses);
    Flow::Next
}

/// An address register of `mapa` and `getctarank`.
pub(crate) trait ClusterAddress: Raw {
    fn in_block(self, rank: u32) -> Self;
    fn block(self) -> Option<u32>;
}

impl ClusterAddress for u32 {
    fn in_block(self, rank: u32) -> Self {
        in_block(self.into(), rank) as u32
    }

    fn block(self) -> Option<u32> {
        block_of(self.into())
    }
}

impl ClusterAddress for u64 {
    fn in_block(self, rank: u32) -> Self {
        in_block(self, rank)
    }

    fn block(self) -> Option<u32> {
        block_of(self)
    }
}

/// `getctarank`: the rank of the block to which an address belongs.
pub(crate) fn rank<R: ClusterAddress>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let own = ctx.place.cluster_rank();
    let ranks = ctx.read::<R>(op.a).map(|address| address.block().unwrap_or(own));
    ctx.write(op.d, ctx.mask, &ranks);
    Flow::Next
}
