//! `cvt` from integers to floating-point numbers.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::modifiers::{ROUND, SAT, is_half};
use crate::exec::map::Unary;
use crate::exec::number::float::Scalar;
use crate::exec::number::int::Int;
use crate::exec::number::rounding::{Round, f64_to_f32, step_f64};
use crate::lanes::simd::Level;

pub(crate) struct IntToFloat<A, D>(PhantomData<(A, D)>);

impl<A: Int, D: FromInt> Unary for IntToFloat<A, D> {
    type A = A;
    type D = D;
    const TOP: Level = if A::BITS == 64 || is_half::<D>() { Level::Base } else { A::TOP };
    #[inline(always)]
    fn apply(a: A, imm: u64) -> D {
        let mode = Round::from_code(imm >> ROUND);
        let r = if A::BITS < 64 {
            D::from_small(a.bits() as i64, mode)
        } else {
            D::from_wide(a.to_i128(), mode)
        };
        if imm & SAT != 0 { r.saturate() } else { r }
    }
}

/// Types to which integers are converted.
pub(crate) trait FromInt: Scalar {
    fn from_small(a: i64, mode: Round) -> Self;
    fn from_wide(a: i128, mode: Round) -> Self;
}

macro_rules! from_int {
    ($ty:ty, $small:expr) => {
        impl FromInt for $ty {
            #[inline(always)]
            fn from_small(a: i64, mode: Round) -> Self {
                $small(a, mode)
            }
            #[inline(always)]
            fn from_wide(a: i128, mode: Round) -> Self {
                // Odd rounding to f64 keeps the information that the second rounding needs.
                let nearest = a as f64;
                let lost = (a - nearest as i128) as f64;
                <$ty>::round_from(step_f64(nearest, lost, Round::Odd), mode)
            }
        }
    };
}

// An f64 represents every integer of up to 32 bits.
from_int!(f16, |a, mode| Self::round_from(a as f64, mode));
from_int!(bf16, |a, mode| Self::round_from(a as f64, mode));

impl FromInt for f32 {
    #[inline(always)]
    fn from_small(a: i64, mode: Round) -> Self {
        if mode == Round::Nearest { a as Self } else { f64_to_f32(a as f64, 0.0, mode) }
    }
    #[inline(always)]
    fn from_wide(a: i128, mode: Round) -> Self {
        if mode == Round::Nearest {
            return a as Self;
        }
        let nearest = a as f64;
        let lost = (a - nearest as i128) as f64;
        f64_to_f32(nearest, lost, mode)
    }
}

impl FromInt for f64 {
    #[inline(always)]
    fn from_small(a: i64, _: Round) -> Self {
        a as Self
    }
    #[inline(always)]
    fn from_wide(a: i128, mode: Round) -> Self {
        let nearest = a as f64;
        step_f64(nearest, (a - nearest as i128) as f64, mode)
    }
}
