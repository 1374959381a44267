//! Asynchronous copies and their waits: `cp.async`, `cp.async.bulk`, `cp.reduce.async.bulk`, `st.async` and
//! `red.async`.

use super::mbarrier::{OBJECT, change, place};
use super::transfer::{perform, perform_bulk, with_copies};
use crate::exec::memory::locate::{Extent, address, global_pointer, shared};
use crate::fault::FaultKind;
use crate::isa::address::in_block;
use crate::isa::operand::{Class, Slot};
use crate::lanes::{LANES, lanes_of};
use crate::machine::async_copies::{
    Action, Bulk, Completion, Copies, LaneCopies, Step, Transfer, WriteMode,
};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

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

/// Directions of transfers, as codes in `Op::imm`.
pub(crate) const GLOBAL_TO_SHARED: u64 = 0;
pub(crate) const SHARED_TO_SHARED: u64 = 1;
pub(crate) const SHARED_TO_GLOBAL: u64 = 2;

/// Required divisor of the sizes and addresses of bulk transfers, in bytes.
const UNIT: u32 = 16;

/// Stores a transfer for later. If there is no room, performs all stored transfers and then this one.
fn push_bulk(ctx: &mut Ctx<'_>, bulk: Bulk) -> Result<(), Flow> {
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
pub(crate) fn copy_bulk(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let begun = lanes_of(ctx.mask).try_for_each(|lane| {
        let blocks = ctx.extra(op, 2);
        if blocks == Slot::NONE || ctx.place.cluster_size() == 1 {
            let bulk = bulk(ctx, op, lane, None)?;
            return push_bulk(ctx, bulk);
        }
        // One copy for each block of the mask.
        let mask = ctx.lane::<u32>(blocks, lane) & 0xFFFF;
        (0..16).filter(|rank| mask >> rank & 1 != 0).try_for_each(|rank| {
            let bulk = bulk(ctx, op, lane, Some(rank))?;
            push_bulk(ctx, bulk)
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
        push_bulk(ctx, Bulk { transfer, completion, lane: lane as u32, warp, pc: op.pc })
    });
    begun.err().unwrap_or(Flow::Next)
}

/// `cp.async.bulk.commit_group`
pub(crate) fn commit_bulk(ctx: &mut Ctx<'_>, _: &Op) -> Flow {
    for lane in lanes_of(ctx.mask) {
        let thread = ctx.team.thread(lane);
        ctx.team.bulks.commit(thread);
    }
    Flow::Next
}

/// `cp.async.bulk.wait_group`: up to `imm` groups may stay outstanding. The others are complete, also with `.read`.
pub(crate) fn wait_for_bulk(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let budget = ctx.budget;
    let done = lanes_of(ctx.mask).try_for_each(|lane| {
        let thread = ctx.team.thread(lane);
        let bulks = ctx.team.bulks.take_groups(thread, op.imm as u32, budget);
        bulks.iter().try_for_each(|bulk| perform_bulk(ctx, bulk))
    });
    done.err().unwrap_or(Flow::Next)
}
