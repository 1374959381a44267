//! The less common minima and maxima: of magnitudes with the product's sign (`.xorsign.abs`) and of three operands.
//! Also fused multiply-adds that handle out-of-bounds values of a tensor (`.oob`).

use half::{bf16, f16};

use super::float_modifiers::{Modal, Mode};
use crate::exec::{
    macros::{binary, ternary},
    number::{float::Float, lane::Two},
};

/// `imm` bits above those of `float_modifiers`.
pub(crate) const MAX: u64 = 1 << 8;
pub(crate) const PROPAGATE: u64 = 1 << 9;
pub(crate) const MAGNITUDES: u64 = 1 << 10;

/// A type and its sign bits.
pub(crate) trait Signs: Float<Raw = u32> {
    const SIGNS: u32;
    /// Returns a mask of the parts that mark an out-of-bounds value. Results with such an operand are zero.
    fn outside(self) -> Self;
}

macro_rules! signs {
    ($($ty:ty: $signs:expr, $each:expr;)*) => { $(
        impl Signs for $ty {
            const SIGNS: u32 = $signs;
            #[inline(always)]
            fn outside(self) -> Self { $each(self) }
        }
    )* };
}

/// Returns a mask of the parts that equal the out-of-bounds mark.
fn marks(raw: u32) -> u32 {
    const MARK: u32 = 0xFFFF;
    let part = |x: u32| if x == MARK { MARK } else { 0 };
    part(raw & 0xFFFF) | part(raw >> 16) << 16
}

signs! {
    f32: 0x8000_0000, |x| x;
    f16: 0x8000, |x: f16| f16::from_bits(marks(u32::from(x.to_bits())) as u16);
    bf16: 0x8000, |x: bf16| bf16::from_bits(marks(u32::from(x.to_bits())) as u16);
    Two<f16>: 0x8000_8000, |x: Two<f16>| lane(marks(raw(x)));
    Two<bf16>: 0x8000_8000, |x: Two<bf16>| lane(marks(raw(x)));
}

fn lane<L: crate::exec::number::lane::Lane<Raw = u32>>(raw: u32) -> L {
    L::from_raw(raw)
}

fn raw<L: crate::exec::number::lane::Lane<Raw = u32>>(x: L) -> u32 {
    x.to_raw()
}

#[inline(always)]
fn extreme<F: Float>(a: F, b: F, imm: u64) -> F {
    match (imm & MAX != 0, imm & PROPAGATE != 0) {
        (false, false) => a.min(b),
        (true, false) => a.max(b),
        (false, true) => a.min_nan(b),
        (true, true) => a.max_nan(b),
    }
}

#[inline(always)]
fn signed<F: Signs>(magnitude: F, a: F, b: F) -> F {
    let signs = (a.to_raw() ^ b.to_raw()) & F::SIGNS;
    // A NaN result is canonical, without a sign.
    F::from_raw((magnitude.to_raw() & !F::SIGNS) | signs).canonical()
}

#[inline(always)]
fn three<F: Float>(a: F, b: F, c: F, imm: u64) -> F {
    let of = |x: F| {
        let x = Modal::<F>::operand(x, imm);
        if imm & MAGNITUDES != 0 { x.abs() } else { x }
    };
    extreme(extreme(of(a), of(b), imm), of(c), imm)
}

/// Returns `a * b + c`, or zero where a factor is the out-of-bounds mark.
#[inline(always)]
fn inside<F: Signs>(a: F, b: F, c: F, imm: u64) -> F {
    let sum = Modal::<F>::result(a.fma(b, c), imm);
    F::from_raw(sum.to_raw() & !(a.outside().to_raw() | b.outside().to_raw()))
}

binary! {
    #[rare] XorSign<F: Signs>: F, F => F, |a, b, imm| {
        let (a, b) = (Modal::<F>::operand(a, imm), Modal::<F>::operand(b, imm));
        signed(extreme(a.abs(), b.abs(), imm), a, b)
    };
}

ternary! {
    #[rare] Three<F: Float>: F, F, F => F, |a, b, c, imm| three(a, b, c, imm);
    #[rare] FmaInside<F: Signs>: F, F, F => F, |a, b, c, imm| inside(a, b, c, imm);
}
