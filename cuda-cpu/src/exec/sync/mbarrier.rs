//! `mbarrier`: barriers in shared memory.
//!
//! The unsafe code dereferences pointers that `locate` has checked for the same access. A block runs on one
//! thread.
//!
//! A thread that waits is suspended (see `exec::sync`): it repeats its instruction after others have run. Copies that
//! complete at an mbarrier are performed when a thread waits for it.

use super::barrier_word::Mbarrier;
use super::suspended;
use super::transfer::progress;
use crate::exec::memory::locate::{Extent, address, shared, shared_pointer};
use crate::fault::{FaultKind, MbarrierMisuse};
use crate::isa::address::SpaceKind;
use crate::isa::operand::Slot;
use crate::lanes::{FULL, lanes_of};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;
use crate::memory::access::Word;

/// The memory of an mbarrier.
pub(crate) const OBJECT: Extent = Extent { bytes: 8, align: 8, write: true };

/// Modes, in the second extra operand.
pub(crate) const DROP: u32 = 1;
pub(crate) const EXPECT_BYTES: u32 = 2;
pub(crate) const NO_COMPLETE: u32 = 4;
pub(crate) const COMPLETE_BYTES: u32 = 8;
/// Waits use a parity instead of a token.
pub(crate) const BY_PARITY: u32 = 16;

/// Returns the offset in shared memory of the lane's mbarrier. The first extra operand is the space.
pub(crate) fn place(ctx: &mut Ctx<'_>, op: &Op, lane: usize) -> Result<u64, Flow> {
    let is_generic = SpaceKind::from_code(ctx.extra(op, 0).0) == SpaceKind::Generic;
    let address = address(ctx, op, lane);
    shared(ctx, lane, address, is_generic, OBJECT)
}

fn load(ctx: &mut Ctx<'_>, lane: usize, at: u64) -> Result<u64, Flow> {
    let pointer = shared_pointer(ctx, lane, at, OBJECT.bytes, true)?;
    // SAFETY: `shared_pointer` has checked the access, and addresses of mbarriers are multiples of 8.
    Ok(unsafe { u64::load(pointer) })
}

fn store(ctx: &mut Ctx<'_>, lane: usize, at: u64, word: u64) -> Result<(), Flow> {
    let pointer = shared_pointer(ctx, lane, at, OBJECT.bytes, true)?;
    ctx.team.moved += 1;
    // SAFETY: `shared_pointer` has checked the access, and addresses of mbarriers are multiples of 8.
    unsafe { u64::store(pointer, word) };
    Ok(())
}

fn misused(ctx: &mut Ctx<'_>, lane: usize, at: u64, misuse: MbarrierMisuse) -> Flow {
    ctx.fail(lane, FaultKind::BadMbarrier { address: at, misuse })
}

/// Modifies an mbarrier and returns its previous word.
pub(crate) fn change(
    ctx: &mut Ctx<'_>,
    lane: usize,
    at: u64,
    how: impl FnOnce(&mut Mbarrier) -> Result<(), MbarrierMisuse>,
) -> Result<u64, Flow> {
    let before = load(ctx, lane, at)?;
    let changed = Mbarrier::from_word(before).and_then(|mut barrier| {
        how(&mut barrier)?;
        Ok(barrier)
    });
    match changed {
        Ok(barrier) => store(ctx, lane, at, barrier.to_word())?,
        Err(misuse) => return Err(misused(ctx, lane, at, misuse)),
    }
    Ok(before)
}

/// Calls `each` for every executing lane.
fn lanes(
    ctx: &mut Ctx<'_>,
    op: &Op,
    mut each: impl FnMut(&mut Ctx<'_>, usize, u64) -> Result<(), Flow>,
) -> Flow {
    for lane in lanes_of(ctx.mask) {
        let done = place(ctx, op, lane).and_then(|at| each(ctx, lane, at));
        if let Err(flow) = done {
            return flow;
        }
    }
    Flow::Next
}

/// `mbarrier.init`. The count is in `b`.
pub(crate) fn init(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    lanes(ctx, op, |ctx, lane, at| match Mbarrier::new(ctx.lane(op.b, lane)) {
        Ok(barrier) => store(ctx, lane, at, barrier.to_word()),
        Err(misuse) => Err(misused(ctx, lane, at, misuse)),
    })
}

/// `mbarrier.inval`
pub(crate) fn invalidate(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    lanes(ctx, op, |ctx, lane, at| {
        change(ctx, lane, at, |_| Ok(()))?;
        store(ctx, lane, at, Mbarrier::INVALID)
    })
}

/// `mbarrier.arrive`, `arrive_drop` and their variants. The count or the number of bytes is in `b`, if given.
pub(crate) fn arrive(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let mode = ctx.extra(op, 1).0;
    lanes(ctx, op, |ctx, lane, at| {
        let given = if op.b == Slot::NONE { 1 } else { ctx.lane::<u32>(op.b, lane) };
        let before = change(ctx, lane, at, |barrier| {
            let mut count = given;
            if mode & EXPECT_BYTES != 0 {
                barrier.expect_bytes(given)?;
                count = 1;
            }
            if mode & DROP != 0 {
                barrier.drop_expected(count)?;
            }
            if mode & NO_COMPLETE != 0 {
                barrier.arrive_within(count)
            } else {
                barrier.arrive(count)
            }
        })?;
        ctx.set_lane(op.d, lane, before);
        Ok(())
    })
}

/// `mbarrier.expect_tx` and `complete_tx`. The number of bytes is in `b`.
pub(crate) fn count_bytes(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let completes = ctx.extra(op, 1).0 & COMPLETE_BYTES != 0;
    lanes(ctx, op, |ctx, lane, at| {
        let bytes = ctx.lane::<u32>(op.b, lane);
        change(ctx, lane, at, |barrier| {
            if completes { barrier.complete_bytes(bytes) } else { barrier.expect_bytes(bytes) }
        })?;
        Ok(())
    })
}

/// `mbarrier.pending_count` of the token in `a`.
pub(crate) fn pending_count(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let counts = ctx.read::<u64>(op.a).map(Mbarrier::pending_of);
    ctx.write(op.d, ctx.mask, &counts);
    Flow::Next
}

/// Returns the lanes whose phase is complete. The token or parity is in `b`.
fn completed(ctx: &mut Ctx<'_>, op: &Op, lanes: u32) -> Result<u32, Flow> {
    let by_parity = ctx.extra(op, 1).0 & BY_PARITY != 0;
    let (mut done, mut waiting) = (0, Vec::new());
    for again in [false, true] {
        for lane in lanes_of(lanes & !done) {
            let at = place(ctx, op, lane)?;
            let word = load(ctx, lane, at)?;
            let barrier =
                Mbarrier::from_word(word).map_err(|misuse| misused(ctx, lane, at, misuse))?;
            let phase = match by_parity {
                true => ctx.lane::<u32>(op.b, lane) & 1 != 0,
                false => Mbarrier::parity_of(ctx.lane(op.b, lane)),
            };
            if barrier.parity != phase {
                done |= 1 << lane;
            } else if !again && !waiting.contains(&at) {
                waiting.push(at);
            }
        }
        if again || waiting.is_empty() || !progress(ctx, &waiting)? {
            break;
        }
    }
    Ok(done)
}

/// `mbarrier.test_wait`, and `try_wait` with a time limit, which is treated as zero.
pub(crate) fn test_wait(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let done = match completed(ctx, op, ctx.mask) {
        Ok(done) => done,
        Err(flow) => return flow,
    };
    ctx.set_pred(op.d, ctx.mask, done);
    if done != ctx.mask {
        ctx.charge_atomic();
    }
    Flow::Next
}

/// `mbarrier.try_wait`. Evaluates its guard itself. Waiting lanes jump to the third extra operand.
pub(crate) fn try_wait(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let active = ctx.guarded(op);
    let done = match completed(ctx, op, active) {
        Ok(done) => done,
        Err(flow) => return flow,
    };
    ctx.set_pred(op.d, done, FULL);
    suspended(ctx, active & !done, ctx.extra(op, 2).0)
}
