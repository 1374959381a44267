//! `cp.async.bulk`, `cp.reduce.async.bulk`, `st.async` and `red.async`, and the waits for their groups.

use super::{mbarrier::OBJECT, transfer::perform_bulk};
use crate::{
    exec::memory::single_lane::{Extent, global_pointer, shared},
    fault::FaultKind,
    isa::{
        address::in_block,
        slot::{Class, Slot},
    },
    lanes::lanes_of,
    machine::{
        async_bulk::{Bulk, Completion, Transfer, WriteMode},
        code::{Flow, Op},
        ctx::Ctx,
    },
};

/// Directions of transfers, as codes in `Op::imm`.
pub(crate) const GLOBAL_TO_SHARED: u64 = 0;
pub(crate) const SHARED_TO_SHARED: u64 = 1;
pub(crate) const SHARED_TO_GLOBAL: u64 = 2;

/// Required divisor of the sizes and addresses of bulk transfers, in bytes.
const UNIT: u32 = 16;

/// Stores a transfer for later. If there is no room, performs all stored transfers and then this one.
fn push(ctx: &mut Ctx<'_>, bulk: Bulk) -> Result<(), Flow> {
    let budget = ctx.budget;
    // Another block of the cluster may wait for it.
    if bulk.is_remote() {
        return perform_bulk(ctx, &bulk);
    }
    if ctx.team.bulks.push(bulk, budget) {
        return Ok(());
    }
    let before = ctx.team.bulks.take_all(budget);
    before.iter().chain([&bulk]).try_for_each(|bulk| perform_bulk(ctx, bulk))
}

/// `cp.async.bulk`. `a` and `b` are the addresses of destination and source, `c` is the size in bytes. The extra
/// operands are the mbarrier's address, the byte mask, the block mask, and the index of the update, each optional.
pub(crate) fn copy(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let begun = lanes_of(ctx.mask).try_for_each(|lane| {
        let blocks = ctx.extra(op, 2);
        if blocks == Slot::NONE || ctx.place.cluster_size() == 1 {
            let bulk = bulk(ctx, op, lane, None)?;
            return push(ctx, bulk);
        }
        // One copy for each block of the mask.
        let mask = ctx.lane::<u32>(blocks, lane) & 0xFFFF;
        (0..16).filter(|rank| mask >> rank & 1 != 0).try_for_each(|rank| {
            let bulk = bulk(ctx, op, lane, Some(rank))?;
            push(ctx, bulk)
        })
    });
    begun.err().unwrap_or(Flow::Next)
}

/// The copy of one lane, to the block with this rank if there are several.
fn bulk(ctx: &mut Ctx<'_>, op: &Op, lane: usize, rank: Option<u32>) -> Result<Bulk, Flow> {
    let [barrier, mask, blocks, update] = [0, 1, 2, 3].map(|i| ctx.extra(op, i));
    let bytes = ctx.lane::<u32>(op.c, lane);
    if !bytes.is_multiple_of(UNIT) {
        return Err(ctx.fail(lane, FaultKind::BadCopy { bytes }));
    }
    if blocks != Slot::NONE {
        let existing = ctx.place.cluster_size();
        let others = (ctx.lane::<u32>(blocks, lane) & 0xFFFF) >> existing;
        if others != 0 {
            let rank = existing + others.trailing_zeros();
            return Err(ctx.fail(lane, FaultKind::NoSuchBlock { rank, blocks: existing }));
        }
    }
    let to_rank = |address| rank.map_or(address, |rank| in_block(address, rank));
    let how = match (mask, update) {
        (Slot::NONE, Slot::NONE) => WriteMode::Copy,
        (Slot::NONE, index) => {
            let (update, size) = ctx.code.updates[index.0 as usize];
            WriteMode::Update(update, size)
        }
        (mask, _) => WriteMode::Masked(ctx.lane::<u32>(mask, lane) as u16),
    };
    let (to, from) = (ctx.lane::<u64>(op.a, lane), ctx.lane::<u64>(op.b, lane));
    let extent = |write| Extent { bytes: bytes.into(), align: UNIT.into(), write };
    let transfer = match op.imm {
        GLOBAL_TO_SHARED => {
            global_pointer(ctx, lane, from, extent(false))?;
            let to = shared(ctx, lane, to_rank(to), false, extent(true))?;
            Transfer::GlobalToShared { from, to, bytes }
        }
        SHARED_TO_SHARED => {
            let from = shared(ctx, lane, from, false, extent(false))?;
            let to = shared(ctx, lane, to, false, extent(true))?;
            Transfer::SharedToShared { from, to, bytes, how }
        }
        _ => {
            let from = shared(ctx, lane, from, false, extent(false))?;
            global_pointer(ctx, lane, to, extent(true))?;
            Transfer::SharedToGlobal { from, to, bytes, how }
        }
    };
    let completion = if barrier == Slot::NONE {
        ctx.team.bulks.in_group(ctx.team.thread(lane))
    } else {
        let at = to_rank(ctx.lane::<u64>(barrier, lane));
        Completion::Barrier { at: shared(ctx, lane, at, false, OBJECT)?, bytes }
    };
    Ok(Bulk { transfer, completion, lane: lane as u32, warp: ctx.team.warp, pc: op.pc })
}

/// `st.async` and `red.async`. `a` is the destination address, `b` the mbarrier's address, `c.0` the number of values
/// and `d.0` their size. The extra operands are 1 if addresses are generic, the index of the update or none, and the
/// values.
pub(crate) fn store(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (is_generic, update) = (ctx.extra(op, 0).0 != 0, ctx.extra(op, 1));
    let (count, size) = (op.c.0, op.d.0);
    let bytes = count * size;
    let update = match update {
        Slot::NONE => None,
        index => Some(ctx.code.updates[index.0 as usize].0),
    };
    let class = if size == 8 { Class::W64 } else { Class::W32 };
    let begun = lanes_of(ctx.mask).try_for_each(|lane| {
        let extent = Extent { bytes: bytes.into(), align: bytes.into(), write: true };
        let (to, at) = (ctx.lane::<u64>(op.a, lane), ctx.lane::<u64>(op.b, lane));
        let to = shared(ctx, lane, to, is_generic, extent)?;
        let at = shared(ctx, lane, at, is_generic, OBJECT)?;
        let mut words = [0; 4];
        for (i, word) in words.iter_mut().enumerate().take(count as usize) {
            let slot = ctx.extra(op, 2 + i);
            *word = match class {
                Class::W64 => ctx.lane::<u64>(slot, lane),
                _ => ctx.lane::<u32>(slot, lane).into(),
            };
        }
        let transfer = Transfer::Words { to, words, count, size, update };
        let completion = Completion::Barrier { at, bytes };
        let warp = ctx.team.warp;
        push(ctx, Bulk { transfer, completion, lane: lane as u32, warp, pc: op.pc })
    });
    begun.err().unwrap_or(Flow::Next)
}

/// `cp.async.bulk.commit_group`
pub(crate) fn commit(ctx: &mut Ctx<'_>, _: &Op) -> Flow {
    for lane in lanes_of(ctx.mask) {
        let thread = ctx.team.thread(lane);
        ctx.team.bulks.commit(thread);
    }
    Flow::Next
}

/// `cp.async.bulk.wait_group`: up to `imm` groups may stay outstanding. The others are complete, also with `.read`.
pub(crate) fn wait(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let budget = ctx.budget;
    let done = lanes_of(ctx.mask).try_for_each(|lane| {
        let thread = ctx.team.thread(lane);
        let bulks = ctx.team.bulks.take_groups(thread, op.imm as u32, budget);
        bulks.iter().try_for_each(|bulk| perform_bulk(ctx, bulk))
    });
    done.err().unwrap_or(Flow::Next)
}
