//! `cp.async` and its waits.

use super::{
    mbarrier::{change, place},
    transfer::{perform, with_copies},
};
use crate::{
    exec::memory::single_lane::{Extent, address, global_pointer, shared},
    fault::FaultKind,
    isa::slot::Slot,
    lanes::{LANES, lanes_of},
    machine::{
        async_copies::{Action, Copies, LaneCopies, Step},
        code::{Flow, Op},
        ctx::Ctx,
    },
};

/// Queues a step. If there is no room, performs all queued steps and then this one.
fn push(ctx: &mut Ctx<'_>, step: Step) -> Result<(), Flow> {
    let (lanes, budget, warp) = (ctx.mask, ctx.budget, ctx.team.warp as usize);
    let keep = |ctx: &mut Ctx<'_>, copies: &mut Copies| {
        let Err(step) = copies.push(lanes, step, budget) else { return Ok(()) };
        copies.finish(budget, |step, lanes| perform(ctx, warp, step, lanes))?;
        perform(ctx, warp, &step, lanes)
    };
    with_copies(ctx, warp, keep).unwrap_or(Ok(()))
}

/// `cp.async`. The op's address is the destination. The extra operands are the source address, the number of bytes to
/// read or none, the predicate that ignores the source or none, whether it is negated, and the number of bytes to
/// write.
pub(crate) fn copy(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let [source, size, ignore, inverted, bytes] = [0, 1, 2, 3, 4].map(|i| ctx.extra(op, i));
    let bytes = bytes.0;
    let ignored = match (ignore, inverted.0) {
        (Slot::NONE, _) => 0,
        (slot, 0) => ctx.pred(slot),
        (slot, _) => !ctx.pred(slot),
    };
    let mut copies =
        LaneCopies { from: [0; LANES], to: [0; LANES], read: [0; LANES], bytes: bytes as u8 };
    let whole = Extent { bytes: bytes.into(), align: bytes.into(), write: true };
    for lane in lanes_of(ctx.mask) {
        let read = match size {
            _ if ignored >> lane & 1 != 0 => 0,
            Slot::NONE => bytes,
            size => ctx.lane::<u32>(size, lane),
        };
        if read > bytes {
            return ctx.fail(lane, FaultKind::BadCopy { bytes: read });
        }
        copies.read[lane] = read as u8;
        copies.from[lane] = ctx.lane(source, lane);
        let to = address(ctx, op, lane);
        let placed = shared(ctx, lane, to, false, whole).and_then(|to| {
            copies.to[lane] = to;
            if read == 0 {
                return Ok(());
            }
            let extent = Extent { bytes: read.into(), align: bytes.into(), write: false };
            global_pointer(ctx, lane, copies.from[lane], extent).map(|_| ())
        });
        if let Err(flow) = placed {
            return flow;
        }
    }
    let action = Action::Copy(Box::new(copies));
    push(ctx, Step { action, pc: op.pc }).err().unwrap_or(Flow::Next)
}

/// `cp.async.commit_group`
pub(crate) fn commit(ctx: &mut Ctx<'_>, _: &Op) -> Flow {
    let lanes = ctx.mask;
    ctx.team.own_copies().into_iter().for_each(|copies| copies.commit(lanes));
    Flow::Next
}

/// `cp.async.wait_group`: up to `imm` groups may stay outstanding.
pub(crate) fn wait(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if ctx.team.own_copies().is_none_or(|copies| copies.is_empty()) {
        return Flow::Next;
    }
    let (lanes, budget, warp) = (ctx.mask, ctx.budget, ctx.team.warp as usize);
    let wait = |ctx: &mut Ctx<'_>, copies: &mut Copies| {
        let perform = |step: &Step, lanes| perform(ctx, warp, step, lanes);
        copies.wait(lanes, op.imm as u32, budget, perform)
    };
    with_copies(ctx, warp, wait).unwrap_or(Ok(())).err().unwrap_or(Flow::Next)
}

/// `cp.async.mbarrier.arrive`. The op's address is that of the mbarrier. The second extra operand is 1 if the
/// instruction adds a pending arrival.
pub(crate) fn arrive(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let one_more = ctx.extra(op, 1).0 != 0;
    let mut barriers = [0; LANES];
    for lane in lanes_of(ctx.mask) {
        let added = place(ctx, op, lane).and_then(|at| {
            barriers[lane] = at;
            change(ctx, lane, at, |barrier| if one_more { barrier.add_pending() } else { Ok(()) })
        });
        if let Err(flow) = added {
            return flow;
        }
    }
    // Lanes without an outstanding copy arrive at once.
    let (all, copying) = (ctx.mask, ctx.team.own_copies().map_or(0, |copies| copies.copying()));
    let step = Step { action: Action::Arrive(Box::new(barriers)), pc: op.pc };
    let warp = ctx.team.warp as usize;
    let arrived = perform(ctx, warp, &step, all & !copying).and_then(|()| {
        ctx.mask = all & copying;
        let pushed = if ctx.mask == 0 { Ok(()) } else { push(ctx, step) };
        ctx.mask = all;
        pushed
    });
    arrived.err().unwrap_or(Flow::Next)
}
