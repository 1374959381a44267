//! `cvt` between all types, with rounding, saturation and flushing.

use std::marker::PhantomData;

use cuda_ptx::{ScalarType as T, Word as W};
use half::{bf16, f16};

use super::forms::{
    FTZ, INTEGRAL, RELU, ROUND, Rounding, SAT, SATFINITE, exists, is_half, is_integer, is_signed,
};
use super::from_int::IntToFloat;
use super::narrow;
use super::narrow::{ToHalf, Widen};
use crate::exec::form::Form;
use crate::exec::map;
use crate::exec::map::{Pick, Unary};
use crate::exec::number::float::{Float, Scalar};
use crate::exec::number::int::Int;
use crate::exec::number::lane::Kind;
use crate::exec::number::rounding::{Round, f64_to_f32, rounds_to_denormal};
use crate::lanes::simd::Level;

/// Fields of `imm` of [`ClampInt`]: from bit `TARGET`, the number of value bits of the target; then whether it is signed.
const TARGET: u32 = 16;
const TARGET_SIGNED: u64 = 1 << 24;

struct IntToInt<A, D>(PhantomData<(A, D)>);
/// `cvt.sat` between integers, to a register of `R`. The target type is in `imm`.
struct ClampInt<A, R>(PhantomData<(A, R)>);
struct FloatToInt<A, D>(PhantomData<(A, D)>);
struct FloatToFloat<A, D>(PhantomData<(A, D)>);

impl<A: Int, D: Int> Unary for IntToInt<A, D> {
    type A = A;
    type D = D;
    // These conversions are common, and `pick_integer` needs few of them.
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
struct Same;

impl Unary for Same {
    type A = f32;
    type D = f32;
    #[inline(always)]
    fn apply(a: f32, _imm: u64) -> f32 {
        a
    }
}

/// `cvt` from f64 to f32 with `.ftz`.
struct DoubleToSingle;

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
struct ShiftUp;

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
            U64: u64, S64: i64], $targets)
    };
}

/// Selects a conversion from an integer to one type.
macro_rules! from_ints {
    ($conv:ident, $from:expr, $d:ty, [$($name:ident: $a:ty),*]) => {
        match $from {
            $(T::$name => Some(map::unary::<$conv<$a, $d>>()),)*
            _ => None,
        }
    };
}

/// Selects the handler of a `cvt`.
pub(crate) fn pick(form: &mut Form<'_>) -> Option<Pick> {
    if form.take(W::Pack) {
        return narrow::pick_pack(form);
    }
    let round =
        form.take_one(&[W::Rn, W::Rz, W::Rm, W::Rp, W::Rni, W::Rzi, W::Rmi, W::Rpi, W::Rna]);
    let rounding = match round {
        None => Rounding::None,
        Some(W::Rn | W::Rz) => Rounding::Common,
        Some(W::Rm | W::Rp) => Rounding::Directed,
        Some(W::Rna) => Rounding::Away,
        Some(_) => Rounding::Integral,
    };
    let mut imm = 0;
    for (name, bit) in [(W::Ftz, FTZ), (W::Sat, SAT), (W::Relu, RELU), (W::Satfinite, SATFINITE)] {
        imm |= if form.take(name) { bit } else { 0 };
    }
    let modifiers = imm;
    imm |= round.map_or(0, Round::code) << ROUND;
    imm |= if rounding == Rounding::Integral { INTEGRAL } else { 0 };
    if form.has_ty(T::E4M3x2) || form.has_ty(T::E5M2x2) {
        return narrow::pick_bytes(form, imm).filter(|_| round == Some(W::Rn));
    }
    let (to, from) = (form.ty()?, form.ty()?);
    if !exists(to, from, rounding, modifiers) {
        return None;
    }
    // A conversion with f16 has no f32 denormals as operands or results.
    let imm = if from == T::F16 { imm & !FTZ } else { imm };
    let pick = match (to, from, is_integer(to), is_integer(from)) {
        (T::F16x2 | T::BF16x2 | T::TF32, ..) => narrow::pick_wide(to, rounding),
        (_, _, true, true) if imm & SAT != 0 => pick_clamped(to, from),
        (_, _, true, true) => pick_integer(to, from),
        (_, _, false, true) => {
            with_ints!(from IntToFloat, from, to, [F16: f16, BF16: bf16, F32: f32, F64: f64])
        }
        (_, _, true, false) => {
            from_each!(FloatToInt, from, to, [F16: f16, BF16: bf16, F32: f32, F64: f64],
                [U8: u8, S8: i8, U16: u16, S16: i16, U32: u32, S32: i32, U64: u64, S64: i64])
        }
        _ => pick_float(to, from, imm),
    };
    pick.map(|p| p.with(imm | p.imm))
}

/// Selects a conversion between integers. A 32-bit lane holds a narrower integer sign- or zero-extended. So most
/// conversions only extend the narrower of the two types, and share handlers.
fn pick_integer(to: T, from: T) -> Option<Pick> {
    let is_wide = |ty: T| ty.size() == 8;
    let narrower = if to.size() <= from.size() { to } else { from };
    let pick = match (is_wide(to), is_wide(from)) {
        (true, true) => Some(map::unary::<IntToInt<u64, u64>>()),
        (true, false) => from_ints!(IntToInt, from, u64, [U8: u8, S8: i8, U16: u16,
            S16: i16, U32: u32, S32: i32]),
        (false, true) => to_each!(IntToInt, u64, to, [U8: u8, S8: i8, U16: u16, S16: i16, U32: u32,
            S32: u32]),
        // Extends the sign to 16 bits, not to the whole lane.
        (false, false) if (to, from) == (T::U16, T::S8) => Some(map::unary::<IntToInt<i8, u16>>()),
        (false, false) => to_each!(IntToInt, u32, narrower, [U8: u8, S8: i8, U16: u16, S16: i16,
            U32: u32, S32: u32]),
    };
    pick.map(|p| Pick { signed: is_signed(to), ..p })
}

/// Selects a `cvt.sat` between integers.
fn pick_clamped(to: T, from: T) -> Option<Pick> {
    let pick = if to.size() == 8 {
        from_ints!(ClampInt, from, u64, [U8: u8, S8: i8, U16: u16, S16: i16, U32: u32, S32: i32,
            U64: u64, S64: i64])
    } else {
        from_ints!(ClampInt, from, u32, [U8: u8, S8: i8, U16: u16, S16: i16, U32: u32, S32: i32,
            U64: u64, S64: i64])
    };
    let sign = u32::from(is_signed(to));
    let target = u64::from(8 * to.size() - sign) << TARGET;
    let imm = target | if is_signed(to) { TARGET_SIGNED } else { 0 };
    pick.map(|p| Pick { signed: is_signed(to), imm, ..p })
}

fn pick_float(to: T, from: T, imm: u64) -> Option<Pick> {
    match (to, from) {
        // These conversions are exact in any rounding mode.
        (T::F32, T::BF16) if imm & FTZ == 0 => Some(map::unary::<ShiftUp>()),
        (T::F32, T::F32) if imm == 0 => Some(map::unary::<Same>()),
        (T::F32, T::F16) => Some(map::unary::<Widen>()),
        (T::F32, T::F64) if imm & FTZ != 0 => Some(map::unary::<DoubleToSingle>()),
        (T::F16, T::F32) => Some(map::unary::<ToHalf<f32, f16>>()),
        (T::BF16, T::F32) => Some(map::unary::<ToHalf<f32, bf16>>()),
        (T::F16, T::BF16) => Some(map::unary::<ToHalf<bf16, f16>>()),
        (T::BF16, T::F16) => Some(map::unary::<ToHalf<f16, bf16>>()),
        _ => from_each!(FloatToFloat, from, to, [F16: f16, BF16: bf16, F32: f32, F64: f64],
            [F16: f16, BF16: bf16, F32: f32, F64: f64]),
    }
}
