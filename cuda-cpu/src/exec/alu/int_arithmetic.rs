//! Integer arithmetic: of single and packed integers, with saturation, and with a carry.

use crate::exec::map::{binary_ops, ternary_ops, unary_ops};
use crate::exec::number::int::Int;
use crate::exec::number::lane::{Lane, Two};
use crate::lanes::lanes_of;
use crate::lanes::simd::Level;
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

/// Returns the highest level for upper halves of products. No vector instruction computes those of 64 bits.
const fn top_of_product<I: Int>() -> Level {
    if I::BITS == 64 { Level::Base } else { I::TOP }
}

unary_ops! {
    Neg<I: Int>: I => I, |a| a.neg();
    Abs<I: Int>: I => I, |a| a.abs();
}

binary_ops! {
    Add<I: Int>: I, I => I, |a, b| a.add(b);
    #[rare] AddSat<I: Int>: I, I => I, |a, b| a.add_sat(b);
    Sub<I: Int>: I, I => I, |a, b| a.sub(b);
    #[rare] SubSat<I: Int>: I, I => I, |a, b| a.sub_sat(b);
    MulLo<I: Int>: I, I => I, |a, b| a.mul(b);
    #[top = top_of_product::<I>()] MulHi<I: Int>: I, I => I, |a, b| a.mul_hi(b);
    #[slow] Div<I: Int>: I, I => I, |a, b| a.div(b);
    #[slow] Rem<I: Int>: I, I => I, |a, b| a.rem(b);
    Min<I: Int>: I, I => I, |a, b| a.min(b);
    Max<I: Int>: I, I => I, |a, b| a.max(b);
    MulWide<I: Widen>: I, I => I::Wide, |a, b| a.widen().mul(b.widen());
}

ternary_ops! {
    MadLo<I: Int>: I, I, I => I, |a, b, c| a.mul(b).add(c);
    #[top = top_of_product::<I>()] MadHi<I: Int>: I, I, I => I, |a, b, c| a.mul_hi(b).add(c);
    #[rare] MadHiSat<I: Int>: I, I, I => I, |a, b, c| a.mul_hi(b).add_sat(c);
    MadWide<I: Widen>: I, I, I::Wide => I::Wide, |a, b, c| a.widen().mul(b.widen()).add(c);
    #[rare] Sad<I: Int>: I, I, I => I, |a, b, c| c.add(a.max(b).sub(a.min(b)));
    Mul24Lo<I: Int24>: I, I, I => I, |a, b, c| a.low24().mul(b.low24()).add(c);
    #[rare] Mul24Hi<I: Int24>: I, I, I => I, |a, b, c| I::product24_hi(a, b).add(c);
    #[rare] Mad24HiSat<I: Int24>: I, I, I => I, |a, b, c| I::product24_hi(a, b).add_sat(c);
}

/// Integers with a type of twice the width.
pub(crate) trait Widen: Int {
    type Wide: Int;
    fn widen(self) -> Self::Wide;
}

macro_rules! widen {
    ($($ty:ty => $wide:ty),*) => { $(
        impl Widen for $ty {
            type Wide = $wide;
            #[inline(always)]
            fn widen(self) -> $wide { <$wide>::from(self) }
        }
    )* };
}

widen!(u16 => u32, i16 => i32, u32 => u64, i32 => i64);

/// The 32-bit integers, for `mul24` and `mad24`.
trait Int24: Int {
    fn low24(self) -> Self;
    /// Returns bits 16 to 47 of the 48-bit product.
    fn product24_hi(a: Self, b: Self) -> Self;
}

impl Int24 for u32 {
    #[inline(always)]
    fn low24(self) -> Self {
        self & 0xFF_FFFF
    }
    #[inline(always)]
    fn product24_hi(a: Self, b: Self) -> Self {
        ((u64::from(a.low24()) * u64::from(b.low24())) >> 16) as Self
    }
}

impl Int24 for i32 {
    #[inline(always)]
    fn low24(self) -> Self {
        (self << 8) >> 8
    }
    #[inline(always)]
    fn product24_hi(a: Self, b: Self) -> Self {
        ((i64::from(a.low24()) * i64::from(b.low24())) >> 16) as Self
    }
}

/// A dot product of packed bytes (`dp4a`), or of halves with bytes (`dp2a`), added to `c`. `imm` contains the signs of
/// the operands, and the half of `b` that `dp2a` takes.
pub(crate) struct Dot<const PARTS: u32>;

/// `imm` bits of [`Dot`].
pub(crate) const A_SIGNED: u64 = 1;
pub(crate) const B_SIGNED: u64 = 2;
pub(crate) const HIGH_HALF: u64 = 4;

impl<const PARTS: u32> crate::exec::map::Ternary for Dot<PARTS> {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    const TOP: Level = if PARTS == 2 { Level::Base } else { Level::Avx512 };
    #[inline(always)]
    fn apply(a: u32, b: u32, c: u32, imm: u64) -> u32 {
        let width = 32 / PARTS;
        let field = |x: u32, width: u32, i: u32, signed: bool| {
            let up = (x >> (i * width)) << (32 - width);
            if signed { ((up as i32) >> (32 - width)) as u32 } else { up >> (32 - width) }
        };
        let first = if PARTS == 2 && imm & HIGH_HALF != 0 { 2 } else { 0 };
        (0..PARTS).fold(c, |sum, i| {
            let x = field(a, width, i, imm & A_SIGNED != 0);
            let y = field(b, 8, first + i, imm & B_SIGNED != 0);
            sum.wrapping_add(x.wrapping_mul(y))
        })
    }
}

/// An integer or two packed ones.
pub(crate) trait Halves: Lane {
    fn each(self, b: Self, f: impl Fn(Self::One, Self::One) -> Self::One) -> Self;
    type One: Int;
}

impl<I: Int + Lane<Raw = u32>> Halves for Two<I> {
    type One = I;
    #[inline(always)]
    fn each(self, b: Self, f: impl Fn(I, I) -> I) -> Self {
        Self(f(self.0, b.0), f(self.1, b.1))
    }
}

impl Halves for i32 {
    type One = Self;
    #[inline(always)]
    fn each(self, b: Self, f: impl Fn(Self, Self) -> Self) -> Self {
        f(self, b)
    }
}

binary_ops! {
    AddTwo<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.add(b));
    MinTwo<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.min(b));
    MaxTwo<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.max(b));
    MinRelu<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.min(b).max(H::One::default()));
    MaxRelu<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.max(b).max(H::One::default()));
}

/// `imm` bits of [`with_carry`].
pub(crate) const CARRY_IN: u64 = 1;
pub(crate) const CARRY_OUT: u64 = 2;
pub(crate) const SUBTRACT: u64 = 4;
pub(crate) const MULTIPLY: u64 = 8;
pub(crate) const HIGH: u64 = 16;

/// Runs an instruction of extended-precision arithmetic: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc` or `madc`. The
/// carry is a hidden predicate register, the extra operand.
pub(crate) fn with_carry<I: Int>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
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
