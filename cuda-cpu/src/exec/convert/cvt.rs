//! `cvt` between all types, with rounding, saturation and flushing.

use std::marker::PhantomData;

use super::modifiers::{FTZ, INTEGRAL, ROUND, SAT, is_half};
use crate::exec::map::Unary;
use crate::exec::number::float::{Float, Scalar};
use crate::exec::number::int::Int;
use crate::exec::number::lane::Kind;
use crate::exec::number::rounding::{Round, f64_to_f32, rounds_to_denormal};
use crate::lanes::simd::Level;

/// Fields of `imm` of [`ClampInt`]: from bit `TARGET`, the number of value bits of the target; then whether it is signed.
pub(crate) const TARGET: u32 = 16;
pub(crate) const TARGET_SIGNED: u64 = 1 << 24;

pub(crate) struct IntToInt<A, D>(PhantomData<(A, D)>);
/// `cvt.sat` between integers, to a register of `R`. The target type is in `imm`.
pub(crate) struct ClampInt<A, R>(PhantomData<(A, R)>);
pub(crate) struct FloatToInt<A, D>(PhantomData<(A, D)>);
pub(crate) struct FloatToFloat<A, D>(PhantomData<(A, D)>);

impl<A: Int, D: Int> Unary for IntToInt<A, D> {
    type A = A;
    type D = D;
    // These conversions are common, and the decoder needs few of them.
    const TOP: Level = Level::Avx512;
    #[inline(always)]
    fn apply(a: A, _imm: u64) -> D {
        D::from_bits(a.bits())
    }
}

impl<A: Int, R: Int> Unary for ClampInt<A, R> {
    type A = A;
    type D = R;
    const TOP: Level = Level::Base;
    #[inline(always)]
    fn apply(a: A, imm: u64) -> R {
        let max = u64::MAX >> (64 - (imm >> TARGET & 0xFF));
        if A::BITS == 64 && !A::SIGNED {
            return R::from_bits(a.bits().min(max));
        }
        let min = if imm & TARGET_SIGNED != 0 { !max as i64 } else { 0 };
        // Every other source fits in i64.
        R::from_bits((a.bits() as i64).max(min).min(max.min(i64::MAX as u64) as i64) as u64)
    }
}

impl<A: Scalar, D: Int> Unary for FloatToInt<A, D> {
    type A = A;
    type D = D;
    const TOP: Level = match (D::BITS, A::KIND) {
        (64, _) | (_, Kind::W32) | (8 | 16, Kind::F64) => Level::Base,
        (8 | 16, _) => Level::Avx2,
        _ => Level::Avx512,
    };
    #[inline(always)]
    fn apply(a: A, imm: u64) -> D {
        let a = if imm & FTZ != 0 { a.flush() } else { a };
        // A NaN in f64, or converted to 64 bits, becomes the highest bit. Otherwise it becomes 0.
        let wide = D::BITS == 64 || A::KIND == Kind::F64;
        if a.to_f64().is_nan() && wide {
            return D::from_bits(1 << (D::BITS - 1));
        }
        float_to_int(a.to_f64(), imm >> ROUND)
    }
}

impl<A: Scalar, D: Scalar> Unary for FloatToFloat<A, D> {
    type A = A;
    type D = D;
    const TOP: Level = if is_half::<A>() || is_half::<D>() { Level::Base } else { Level::Avx512 };
    #[inline(always)]
    fn apply(a: A, imm: u64) -> D {
        // Flushing is a separate operation with a canonical NaN.
        let a = if imm & FTZ != 0 { a.flush().canonical() } else { a };
        let mode = imm >> ROUND;
        let x = a.to_f64();
        if x.is_nan() && imm & SAT == 0 && keeps_nan::<A, D>() {
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

/// `cvt.f32.f32`: copies the bits, also of a NaN.
pub(crate) struct Same;

impl Unary for Same {
    type A = f32;
    type D = f32;
    #[inline(always)]
    fn apply(a: f32, _imm: u64) -> f32 {
        a
    }
}

/// `cvt` from f64 to f32 with `.ftz`.
pub(crate) struct DoubleToSingle;

impl Unary for DoubleToSingle {
    type A = f64;
    type D = f32;
    #[inline(always)]
    fn apply(a: f64, imm: u64) -> f32 {
        let mode = Round::from_code(imm >> ROUND);
        let r = f64_to_f32(a, 0.0, mode);
        let r = if rounds_to_denormal(a, mode) { r * 0.0 } else { r };
        if imm & SAT != 0 { r.saturate() } else { r }
    }
}

/// `cvt.f32.bf16`: moves the bits to the upper half, also of a NaN.
pub(crate) struct ShiftUp;

impl Unary for ShiftUp {
    type A = u16;
    type D = f32;
    const TOP: Level = Level::Avx512;
    #[inline(always)]
    fn apply(a: u16, _imm: u64) -> f32 {
        f32::from_bits(u32::from(a) << 16)
    }
}

/// Returns whether the conversion keeps the upper payload bits of a NaN. Others make it canonical.
#[inline(always)]
fn keeps_nan<A: Scalar, D: Scalar>() -> bool {
    A::KIND == Kind::F64 && D::KIND != Kind::F64
}

#[inline(always)]
fn finish<D: Float>(r: D, imm: u64) -> D {
    let r = if imm & FTZ != 0 { r.flush() } else { r };
    let r = if imm & SAT != 0 { r.saturate() } else { r };
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

/// Converts to an integer. Values out of range are clamped, and NaN becomes 0.
#[inline(always)]
fn float_to_int<D: Int>(x: f64, mode: u64) -> D {
    if x.is_nan() {
        return D::default();
    }
    // `as` truncates the fraction.
    let x = if mode == 1 { x } else { integral(x, mode) };
    if D::BITS == 64 {
        // Saturates at the bounds of 128 bits, which are far beyond those of `D`.
        return D::clamp_i128(x as i128);
    }
    D::clamp_i64(x as i64)
}
