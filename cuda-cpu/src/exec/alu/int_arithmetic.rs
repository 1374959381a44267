//! Integer arithmetic: `add`, `sub`, `mul`, `mad`, `div`, `rem`, `min`, `max`, `sad`, dot products and 24-bit forms.

use crate::exec::macros::{binary, ternary, unary};
use crate::exec::number::int::Int;
use crate::lanes::simd::Level;

/// Returns the highest level for upper halves of products. No vector instruction computes those of 64 bits.
const fn top_of_product<I: Int>() -> Level {
    if I::BITS == 64 { Level::Base } else { I::TOP }
}

unary! {
    Neg<I: Int>: I => I, |a| a.neg();
    Abs<I: Int>: I => I, |a| a.abs();
}

binary! {
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

ternary! {
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
pub(crate) trait Int24: Int {
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
