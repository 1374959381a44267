//! The less common minima and maxima: of magnitudes with the product's sign (`.xorsign.abs`) and of three operands.

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
}

macro_rules! signs {
    ($($ty:ty: $signs:expr;)*) => { $(
        impl Signs for $ty {
            const SIGNS: u32 = $signs;
        }
    )* };
}

signs! {
    f32: 0x8000_0000;
    f16: 0x8000;
    bf16: 0x8000;
    Two<f16>: 0x8000_8000;
    Two<bf16>: 0x8000_8000;
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

binary! {
    #[rare] XorSign<F: Signs>: F, F => F, |a, b, imm| {
        let (a, b) = (Modal::<F>::operand(a, imm), Modal::<F>::operand(b, imm));
        signed(extreme(a.abs(), b.abs(), imm), a, b)
    };
}

ternary! {
    #[rare] Three<F: Float>: F, F, F => F, |a, b, c, imm| three(a, b, c, imm);
}
