//! Moves, selections and predicate logic.

use crate::exec::number::lane::Lane;
use crate::lanes::LANES;
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::{Ctx, Raw};

/// `mov` of a register.
pub(crate) fn copy<R: Raw>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let values = ctx.read::<R>(op.a);
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}

/// `mov` of a predicate. It is negated if `imm` is 1.
pub(crate) fn copy_pred(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let value = ctx.pred(op.a);
    ctx.set_pred(op.d, ctx.mask, if op.imm != 0 { !value } else { value });
    Flow::Next
}

/// `d = p ? a : b`. The predicate is in `c`. It is negated if `imm` is 1.
pub(crate) fn select<R: Raw>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let pred = ctx.pred(op.c);
    let pred = if op.imm != 0 { !pred } else { pred };
    let (a, b) = (ctx.read::<R>(op.a), ctx.read::<R>(op.b));
    let values: [R; LANES] = std::array::from_fn(|i| if pred >> i & 1 != 0 { a[i] } else { b[i] });
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}

/// `d = c >= 0 ? a : b`.
pub(crate) fn select_sign<R: Raw, C: Lane + PartialOrd>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (a, b, c) = (ctx.read::<R>(op.a), ctx.read::<R>(op.b), ctx.read::<C::Raw>(op.c));
    let zero = C::default();
    let values: [R; LANES] =
        std::array::from_fn(|i| if C::from_raw(c[i]) >= zero { a[i] } else { b[i] });
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}

/// An operation on two predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

/// `imm` bits of [`logic`], above the operation: negated operands.
pub(crate) const NOT_A: u64 = 4;
pub(crate) const NOT_B: u64 = 8;

/// Combines two predicates.
pub(crate) fn logic(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (a, b) = (ctx.pred(op.a), ctx.pred(op.b));
    let a = if op.imm & NOT_A != 0 { !a } else { a };
    let b = if op.imm & NOT_B != 0 { !b } else { b };
    let value = match op.imm & 3 {
        0 => a & b,
        1 => a | b,
        _ => a ^ b,
    };
    ctx.set_pred(op.d, ctx.mask, value);
    Flow::Next
}

/// Writes a predicate as 0 or `imm` to 32-bit lanes.
pub(crate) fn pred_to_lanes(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let pred = ctx.pred(op.a);
    let values: [u32; LANES] = std::array::from_fn(|i| (pred >> i & 1) * op.imm as u32);
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}

/// Copies the low half of a 64-bit register for a 32-bit use.
pub(crate) fn narrow(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let values = ctx.read::<u64>(op.a).map(|x| x as u32);
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}

/// Copies a 32-bit value to a 64-bit register, zero-extended, or sign-extended if `imm` is 1.
pub(crate) fn widen(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let values = ctx.read::<u32>(op.a);
    let values = match op.imm {
        0 => values.map(u64::from),
        _ => values.map(|x| i64::from(x as i32) as u64),
    };
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}

/// `mov.b64 d, {a, b}`.
pub(crate) fn pack_64(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (a, b) = (ctx.read::<u32>(op.a), ctx.read::<u32>(op.b));
    let values: [u64; LANES] = std::array::from_fn(|i| u64::from(a[i]) | u64::from(b[i]) << 32);
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}

/// `mov.b32 d, {a, b}`. `imm` is the number of bits of each part.
pub(crate) fn pack_32(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (a, b) = (ctx.read::<u32>(op.a), ctx.read::<u32>(op.b));
    let ones = (1u32 << op.imm) - 1;
    let values: [u32; LANES] = std::array::from_fn(|i| (a[i] & ones) | (b[i] & ones) << op.imm);
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}

/// Extracts the `imm` (up to 32) bits of a 64-bit register that start at bit `extra`.
pub(crate) fn part_of_64(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (shift, ones) = (op.extra, u32::MAX >> (32 - op.imm));
    let values = ctx.read::<u64>(op.a).map(|x| (x >> shift) as u32 & ones);
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}

/// As [`part_of_64`], for a 32-bit register.
pub(crate) fn part_of_32(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (shift, ones) = (op.extra, u32::MAX >> (32 - op.imm));
    let values = ctx.read::<u32>(op.a).map(|x| (x >> shift) & ones);
    ctx.write(op.d, ctx.mask, &values);
    Flow::Next
}
