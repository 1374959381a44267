//! `cvt`: between all types, with rounding, saturation and flushing.

use std::marker::PhantomData;

use cuda_ptx::ScalarType as T;
use half::{bf16, f16};

use super::float::{Float, Scalar};
use super::int::Int;
use super::lane::{Kind, Two};
use super::map::{self, Binary, Pick, Unary};
use super::rounding::{Round, f64_to_f32, step_f64};
use crate::engine::decode::form::Form;

/// `imm` bits; the rounding mode's code stands above them.
const FTZ: u64 = 1;
const SAT: u64 = 2;
const RELU: u64 = 4;
/// Round to an integral value (float to float with `.rni` and so on).
const INTEGRAL: u64 = 8;
const ROUND: u32 = 4;

struct IntToInt<A, D>(PhantomData<(A, D)>);
struct IntToFloat<A, D>(PhantomData<(A, D)>);
struct FloatToInt<A, D>(PhantomData<(A, D)>);
struct FloatToFloat<A, D>(PhantomData<(A, D)>);

impl<A: Int, D: Int> Unary for IntToInt<A, D> {
    type A = A;
    type D = D;
    #[inline(always)]
    fn apply(a: A, imm: u64) -> D {
        if imm & SAT != 0 { D::clamp_i128(a.to_i128()) } else { D::from_bits(a.bits()) }
    }
}

impl<A: Int, D: FromInt> Unary for IntToFloat<A, D> {
    type A = A;
    type D = D;
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

impl<A: Scalar, D: Int> Unary for FloatToInt<A, D> {
    type A = A;
    type D = D;
    #[inline(always)]
    fn apply(a: A, imm: u64) -> D {
        let a = if imm & FTZ != 0 { a.flush() } else { a };
        // From f64, NaN gives the highest bit alone; from the others only with 64 bits.
        let wide = D::BITS == 64 || (D::BITS == 32 && A::KIND == Kind::F64);
        if a.to_f64().is_nan() && wide {
            return D::from_bits(1 << (D::BITS - 1));
        }
        float_to_int(a.to_f64(), imm >> ROUND)
    }
}

impl<A: Scalar, D: Scalar> Unary for FloatToFloat<A, D> {
    type A = A;
    type D = D;
    #[inline(always)]
    fn apply(a: A, imm: u64) -> D {
        let a = if imm & FTZ != 0 { a.flush() } else { a };
        let mode = imm >> ROUND;
        let x = a.to_f64();
        if x.is_nan() && imm & (SAT | RELU) == 0 && keeps_nan::<A, D>() {
            return D::payload(x);
        }
        let r = if imm & INTEGRAL != 0 {
            D::round_from(integral(x, mode), Round::Nearest)
        } else {
            D::round_from(x, Round::from_code(mode))
        };
        finish(r, imm)
    }
}

/// `cvt.f32.bf16`: the upper half of the bits, NaN or not.
struct ShiftUp;

impl Unary for ShiftUp {
    type A = u16;
    type D = f32;
    #[inline(always)]
    fn apply(a: u16, _imm: u64) -> f32 {
        f32::from_bits(u32::from(a) << 16)
    }
}

/// Conversions that keep what they can of a NaN instead of making it canonical.
#[inline(always)]
fn keeps_nan<A: Scalar, D: Scalar>() -> bool {
    A::KIND == Kind::F64 && D::KIND != Kind::F64
}

#[inline(always)]
fn finish<D: Float>(r: D, imm: u64) -> D {
    let r = if imm & FTZ != 0 { r.flush() } else { r };
    let r = if imm & SAT != 0 { r.saturate() } else { r };
    let r = if imm & RELU != 0 { r.max_nan(D::default()) } else { r };
    r.canonical()
}

#[inline(always)]
fn integral(x: f64, mode: u64) -> f64 {
    match mode {
        0 => x.round_ties_even(),
        1 => x.trunc(),
        2 => x.floor(),
        _ => x.ceil(),
    }
}

/// Out of range clamps; NaN becomes 0.
#[inline(always)]
fn float_to_int<D: Int>(x: f64, mode: u64) -> D {
    if x.is_nan() {
        return D::default();
    }
    if D::BITS == 64 {
        // Saturates at the bounds of 128 bits, which is far beyond those of `D`.
        return D::clamp_i128(integral(x, mode) as i128);
    }
    D::clamp_i64(integral(x, mode) as i64)
}

/// Types that integers are converted to.
trait FromInt: Scalar {
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
                // Odd rounding to f64 keeps what a second rounding needs to know.
                let nearest = a as f64;
                let lost = (a - nearest as i128) as f64;
                <$ty>::round_from(step_f64(nearest, lost, Round::Odd), mode)
            }
        }
    };
}

// An f64 holds every integer of up to 32 bits.
from_int!(f16, |a, mode| Self::round_from(a as f64, mode));
from_int!(bf16, |a, mode| Self::round_from(a as f64, mode));

impl FromInt for f32 {
    #[inline(always)]
    fn from_small(a: i64, mode: Round) -> Self {
        if mode == Round::Nearest { a as Self } else { f64_to_f32(a as f64, 0.0, mode) }
    }
    #[inline(always)]
    fn from_wide(a: i128, mode: Round) -> Self {
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

/// `cvt.rn.f16x2.f32 d, a, b`: the first operand goes to the upper half.
struct PackHalves<H>(PhantomData<H>);

impl<H: Scalar<Raw = u32>> Binary for PackHalves<H> {
    type A = f32;
    type B = f32;
    type D = Two<H>;
    #[inline(always)]
    fn apply(a: f32, b: f32, imm: u64) -> Two<H> {
        let mode = Round::from_code(imm >> ROUND);
        let one = |x: f32| finish(H::round_from(f64::from(x), mode), imm & (SAT | RELU));
        Two(one(b), one(a))
    }
}

macro_rules! to_each {
    ($conv:ident, $a:ty, $to:expr, [$($name:ident: $d:ty),*]) => {
        match $to {
            $(T::$name => Some(map::unary::<$conv<$a, $d>>()),)*
            _ => None,
        }
    };
}

macro_rules! from_each {
    ($conv:ident, $from:expr, $to:expr, [$($name:ident: $a:ty),*], $targets:tt) => {
        match $from {
            $(T::$name => to_each!($conv, $a, $to, $targets),)*
            _ => None,
        }
    };
}

macro_rules! with_ints {
    (from $conv:ident, $from:expr, $to:expr, $targets:tt) => {
        from_each!($conv, $from, $to, [U8: u8, S8: i8, U16: u16, S16: i16, U32: u32, S32: i32,
            U64: u64, S64: i64, B8: u8, B16: u16, B32: u32, B64: u64], $targets)
    };
}

fn is_float(ty: T) -> bool {
    matches!(ty, T::F16 | T::BF16 | T::F32 | T::F64)
}

/// Chooses the handler of a `cvt`.
pub(crate) fn pick(form: &mut Form<'_>) -> Option<Pick> {
    let round = form.take_one(&["rn", "rz", "rm", "rp"]);
    let integer = form.take_one(&["rni", "rzi", "rmi", "rpi"]);
    let mut imm = round.or(integer).map_or(0, Round::code) << ROUND;
    for (name, bit) in [("ftz", FTZ), ("sat", SAT), ("relu", RELU)] {
        imm |= if form.take(name) { bit } else { 0 };
    }
    let (to, from) = (form.ty()?, form.ty()?);
    let pick = match (to, from, is_float(to), is_float(from)) {
        (T::F16x2, T::F32, ..) => Some(map::binary::<PackHalves<f16>>()),
        (T::F32, T::BF16, ..) if imm == 0 => Some(map::unary::<ShiftUp>()),
        (T::BF16x2, T::F32, ..) => Some(map::binary::<PackHalves<bf16>>()),
        (_, _, false, false) if round.or(integer).is_none() => {
            with_ints!(from IntToInt, from, to, [U8: u8, S8: i8, U16: u16, S16: i16, U32: u32,
                S32: i32, U64: u64, S64: i64, B8: u8, B16: u16, B32: u32, B64: u64])
        }
        (_, _, true, false) if round.is_some() => {
            with_ints!(from IntToFloat, from, to, [F16: f16, BF16: bf16, F32: f32, F64: f64])
        }
        (_, _, false, true) if integer.is_some() => {
            from_each!(FloatToInt, from, to, [F16: f16, BF16: bf16, F32: f32, F64: f64],
                [U8: u8, S8: i8, U16: u16, S16: i16, U32: u32, S32: i32, U64: u64, S64: i64])
        }
        (_, _, true, true) => {
            imm |= if integer.is_some() { INTEGRAL } else { 0 };
            from_each!(FloatToFloat, from, to, [F16: f16, BF16: bf16, F32: f32, F64: f64],
                [F16: f16, BF16: bf16, F32: f32, F64: f64])
        }
        _ => None,
    };
    pick.map(|p| p.with(imm))
}
