//! Extended-precision arithmetic: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc` and `madc`. The carry is a hidden
//! predicate register.

use crate::exec::number::int::Int;
use crate::exec::number::lane::Lane;
use crate::lanes::lanes_of;
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

/// `imm` bits.
pub(crate) const CARRY_IN: u64 = 1;
pub(crate) const CARRY_OUT: u64 = 2;
pub(crate) const SUBTRACT: u64 = 4;
pub(crate) const MULTIPLY: u64 = 8;
pub(crate) const HIGH: u64 = 16;

/// Runs an instruction. The carry register is the extra operand.
pub(crate) fn run<I: Int>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let flag = ctx.extra(op, 0);
    let carry = ctx.pred(flag);
    let (mut out, mask) = (0, ctx.mask);
    for lane in lanes_of(mask) {
        let get = |slot| I::from_raw(ctx.lane::<<I as Lane>::Raw>(slot, lane));
        let (mut a, mut b) = (get(op.a), get(op.b));
        if op.imm & MULTIPLY != 0 {
            a = if op.imm & HIGH != 0 { a.mul_hi(b) } else { a.mul(b) };
            b = get(op.c);
        }
        // The operands are treated as unsigned, so that the carry is the bit above them. Subtraction adds the
        // complement and one. A set carry then means that there was no borrow, which `addc` can observe.
        let subtract = op.imm & SUBTRACT != 0;
        let first = i128::from(subtract);
        let input = if op.imm & CARRY_IN != 0 { i128::from(carry >> lane & 1) } else { first };
        let ones = (1i128 << I::BITS) - 1;
        let (x, y) = (a.to_i128() & ones, b.to_i128() & ones);
        let sum = x + if subtract { y ^ ones } else { y } + input;
        out |= u32::from(sum & !ones != 0) << lane;
        ctx.set_lane(op.d, lane, I::from_i128(sum & ones).to_raw());
    }
    if op.imm & CARRY_OUT != 0 {
        ctx.set_pred(flag, mask, out);
    }
    Flow::Next
}
