//! Instructions in which the lanes of a warp cooperate: `shfl`, `vote`, `match`, `redux` and `bar.warp.sync`.
//!
//! Lanes with the same member mask meet. Each lane deposits its value in the exchange buffer. When all members that
//! have not exited are present, each fragment computes its results from the deposited values.

use super::number::float::Float;
use crate::fault::FaultKind;
use crate::isa::operand::Slot;
use crate::lanes::{FULL, LANES, lanes_of};
use crate::machine::code::{Control, Flow, Op};
use crate::machine::ctx::Ctx;

/// Runs at once if all members are executing. Otherwise the scheduler parks the lanes.
pub(crate) fn collective(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let active = ctx.guarded(op);
    if active == 0 {
        return Flow::Next;
    }
    let &Control::Collective(c) = ctx.control(op) else { return Flow::Next };
    if let Some(lane) = outside(ctx, c.members, active) {
        let members = ctx.lane::<u32>(c.members, lane);
        return ctx.fail(lane, FaultKind::LaneOutsideMask { members });
    }
    if !all_here(ctx, c.members, active) {
        return Flow::Control;
    }
    let all = std::mem::replace(&mut ctx.mask, active);
    (c.deposit)(ctx, op);
    (c.complete)(ctx, op, active);
    ctx.mask = all;
    Flow::Next
}

/// Returns whether the executing lanes have the same member mask and include all members that have not exited.
pub(crate) fn all_here(ctx: &Ctx<'_>, members: Slot, active: u32) -> bool {
    let mask = ctx.lane::<u32>(members, active.trailing_zeros() as usize & 31);
    let same = lanes_of(active).all(|lane| ctx.lane::<u32>(members, lane) == mask);
    same && mask & ctx.live & !active == 0
}

fn outside(ctx: &Ctx<'_>, members: Slot, active: u32) -> Option<usize> {
    lanes_of(active).find(|&lane| ctx.lane::<u32>(members, lane) >> lane & 1 == 0)
}

/// Deposits nothing.
pub(crate) fn deposit_nothing(_: &mut Ctx<'_>, _: &Op) {}

/// Computes no result.
pub(crate) fn complete_nothing(_: &mut Ctx<'_>, _: &Op, _: u32) {}

/// Deposits a 32-bit register.
pub(crate) fn deposit_32(ctx: &mut Ctx<'_>, op: &Op) {
    let values = ctx.read::<u32>(op.a);
    for lane in lanes_of(ctx.mask) {
        ctx.exchange[lane] = u64::from(values[lane]);
    }
}

/// Deposits a 64-bit register.
pub(crate) fn deposit_64(ctx: &mut Ctx<'_>, op: &Op) {
    let values = ctx.read::<u64>(op.a);
    for lane in lanes_of(ctx.mask) {
        ctx.exchange[lane] = values[lane];
    }
}

/// Deposits a predicate. It is negated if `imm` contains [`PRED_NOT`].
pub(crate) fn deposit_pred(ctx: &mut Ctx<'_>, op: &Op) {
    let value = ctx.pred(op.a);
    let value = if op.imm & PRED_NOT != 0 { !value } else { value };
    for lane in lanes_of(ctx.mask) {
        ctx.exchange[lane] = u64::from(value >> lane & 1);
    }
}

/// The `imm` bit of a negated predicate.
pub(crate) const PRED_NOT: u64 = 0x100;

/// Completes `shfl`. `imm` is the index of its mode among `up`, `down`, `bfly` and `idx`. `b` is the lane operand, `c`
/// contains clamp and segment mask, and `Op::cache` is the predicate register or `Slot::NONE`.
pub(crate) fn complete_shfl(ctx: &mut Ctx<'_>, op: &Op, participants: u32) {
    let (b, c) = (ctx.read::<u32>(op.b), ctx.read::<u32>(op.c));
    let pred = Slot(op.cache);
    let (mut result, mut valid) = ([0u32; LANES], 0u32);
    for lane in 0..LANES {
        let (source, ok) = shfl_source(op.imm, lane as u32, b[lane], c[lane]);
        // An absent source lane has no value, so the result is undefined. The lane's own value is used.
        let shown = ok && participants >> source & 1 != 0;
        result[lane] = ctx.exchange[if shown { source as usize } else { lane }] as u32;
        valid |= u32::from(ok) << lane;
    }
    ctx.write(op.d, ctx.mask, &result);
    if pred != Slot::NONE {
        ctx.set_pred(pred, ctx.mask, valid);
    }
}

/// Returns the source lane of `shfl` and whether it is in range. If not, the source is the lane itself.
fn shfl_source(mode: u64, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let max = (lane & segment) | (clamp & !segment);
    let min = lane & segment;
    let (source, ok) = match mode {
        0 => {
            let source = lane.wrapping_sub(b) as i32;
            (source as u32, source >= max as i32)
        }
        1 => (lane + b, lane + b <= max),
        2 => (lane ^ b, lane ^ b <= max),
        _ => {
            let source = min | (b & !segment);
            (source, source <= max)
        }
    };
    if ok { (source & 31, true) } else { (lane, false) }
}

/// Returns the source of each lane, and the lanes whose source does not participate.
pub(crate) fn shuffle_sources(
    ctx: &Ctx<'_>,
    op: &Op,
    active: u32,
    participants: u32,
) -> ([u8; LANES], u32) {
    let (b, c) = (ctx.read::<u32>(op.b), ctx.read::<u32>(op.c));
    let (mut sources, mut absent) = ([0; LANES], 0);
    for lane in lanes_of(active) {
        let (source, _) = shfl_source(op.imm, lane as u32, b[lane], c[lane]);
        sources[lane] = source as u8;
        absent |= (!participants >> source & 1) << lane;
    }
    (sources, absent)
}

/// Completes `vote`. The low bits of `imm` are the index of its mode among `all`, `any`, `uni` and `ballot`.
pub(crate) fn complete_vote(ctx: &mut Ctx<'_>, op: &Op, participants: u32) {
    let votes = lanes_of(participants)
        .fold(0u32, |votes, lane| votes | (ctx.exchange[lane] as u32 & 1) << lane);
    let held = match op.imm & 0xFF {
        0 => votes == participants,
        1 => votes != 0,
        2 => votes == 0 || votes == participants,
        _ => return ctx.write(op.d, ctx.mask, &[votes; LANES]),
    };
    ctx.set_pred(op.d, ctx.mask, if held { FULL } else { 0 });
}

/// `match.any`: returns the mask of the lanes with the same value.
pub(crate) fn complete_match_any(ctx: &mut Ctx<'_>, op: &Op, participants: u32) {
    let shown = *ctx.exchange;
    let same = |lane: usize| {
        lanes_of(participants)
            .filter(|&other| shown[other] == shown[lane])
            .fold(0u32, |mask, other| mask | 1 << other)
    };
    let values = std::array::from_fn(same);
    ctx.write::<u32>(op.d, ctx.mask, &values);
}

/// `match.all`: returns all participants and a true predicate if their values are equal, otherwise 0 and false.
pub(crate) fn complete_match_all(ctx: &mut Ctx<'_>, op: &Op, participants: u32) {
    let shown = *ctx.exchange;
    let first = participants.trailing_zeros() as usize & 31;
    let same = lanes_of(participants).all(|lane| shown[lane] == shown[first]);
    ctx.write(op.d, ctx.mask, &[if same { participants } else { 0 }; LANES]);
    let pred = Slot(op.cache);
    if pred != Slot::NONE {
        ctx.set_pred(pred, ctx.mask, if same { FULL } else { 0 });
    }
}

/// The `imm` bit of a signed type.
pub(crate) const REDUX_SIGNED: u64 = 0x10;

/// Completes `redux` of integers. The low bits of `imm` are the index of the operation among `add`, `min`, `max`,
/// `and`, `or` and `xor`.
pub(crate) fn complete_redux(ctx: &mut Ctx<'_>, op: &Op, participants: u32) {
    let signed = op.imm & REDUX_SIGNED != 0;
    let values = lanes_of(participants).map(|lane| ctx.exchange[lane] as u32);
    let combine = |a: u32, b: u32| match (op.imm & 0xF, signed) {
        (0, _) => a.wrapping_add(b),
        (1, false) => a.min(b),
        (1, true) => (a as i32).min(b as i32) as u32,
        (2, false) => a.max(b),
        (2, true) => (a as i32).max(b as i32) as u32,
        (3, _) => a & b,
        (4, _) => a | b,
        _ => a ^ b,
    };
    let result = values.reduce(combine).unwrap_or(0);
    ctx.write(op.d, ctx.mask, &[result; LANES]);
}

/// `imm` bits of `redux` of f32: maximum instead of minimum, compare magnitudes, propagate NaN.
pub(crate) const REDUX_MAX: u64 = 1;
pub(crate) const REDUX_ABS: u64 = 2;
pub(crate) const REDUX_NAN: u64 = 4;

pub(crate) fn complete_redux_float(ctx: &mut Ctx<'_>, op: &Op, participants: u32) {
    let has = |bit: u64| op.imm & bit != 0;
    let values = lanes_of(participants).map(|lane| {
        let value = f32::from_bits(ctx.exchange[lane] as u32);
        if has(REDUX_ABS) { Float::abs(value) } else { value }
    });
    let combine = match (has(REDUX_MAX), has(REDUX_NAN)) {
        (false, false) => <f32 as Float>::min,
        (false, true) => <f32 as Float>::min_nan,
        (true, false) => <f32 as Float>::max,
        (true, true) => <f32 as Float>::max_nan,
    };
    let result = values.reduce(combine).unwrap_or_default().canonical();
    ctx.write(op.d, ctx.mask, &[result.to_bits(); LANES]);
}

/// `elect.sync`: elects the lowest participating lane. `Op::cache` is the predicate register.
pub(crate) fn complete_elect(ctx: &mut Ctx<'_>, op: &Op, participants: u32) {
    let leader = participants.trailing_zeros() & 31;
    ctx.write(op.d, ctx.mask, &[leader; LANES]);
    ctx.set_pred(Slot(op.cache), ctx.mask, 1 << leader);
}

/// `activemask`.
pub(crate) fn active_mask(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    ctx.write(op.d, ctx.mask, &[ctx.mask; LANES]);
    Flow::Next
}
