//! The less common fused multiply-adds of halves: in the directed rounding modes, and with out-of-bounds values of a tensor
//! (`.oob`).

use half::{bf16, f16};

use super::float_modifiers::{Modal, Mode, ROUND};
use crate::exec::{
    macros::ternary,
    number::{
        float::{Float, Scalar},
        lane::Two,
        rounding::{Round, add_f64},
    },
};

/// The `imm` bit of `.oob`, above those of `float_modifiers`.
pub(crate) const INSIDE: u64 = 1 << 8;

/// A half or two packed halves.
pub(crate) trait Halves: Float<Raw = u32> {
    /// Returns `a * b + c`, rounded once.
    fn round_fma(a: Self, b: Self, c: Self, mode: Round) -> Self;
}

impl<H: Scalar<Raw = u32>> Halves for H {
    fn round_fma(a: Self, b: Self, c: Self, mode: Round) -> Self {
        // The product is exact. A sum rounded to odd keeps what the second rounding needs.
        let (product, c) = (a.to_f64() * b.to_f64(), c.to_f64());
        let exact = product + c == 0.0;
        Self::round_from(add_f64(product, c, if exact { mode } else { Round::Odd }), mode)
    }
}

macro_rules! two {
    ($($half:ty),*) => { $(
        impl Halves for Two<$half> {
            fn round_fma(a: Self, b: Self, c: Self, mode: Round) -> Self {
                Self(<$half>::round_fma(a.0, b.0, c.0, mode), <$half>::round_fma(a.1, b.1, c.1, mode))
            }
        }
    )* };
}

two!(f16, bf16);

/// Returns a mask of the parts that equal the out-of-bounds mark. Results with such a factor are zero.
fn outside(raw: u32) -> u32 {
    const MARK: u32 = 0xFFFF;
    let part = |x: u32| if x == MARK { MARK } else { 0 };
    part(raw & 0xFFFF) | part(raw >> 16) << 16
}

ternary! {
    #[rare] FmaHalves<H: Halves>: H, H, H => H, |a, b, c, imm| {
        let mode = Round::from_code(imm >> ROUND & 3);
        let sum = if mode == Round::Nearest { a.fma(b, c) } else { H::round_fma(a, b, c, mode) };
        let sum = Modal::<H>::result(sum, imm);
        let outside = if imm & INSIDE != 0 { outside(a.to_raw()) | outside(b.to_raw()) } else { 0 };
        H::from_raw(sum.to_raw() & !outside)
    };
}
