//! Decodes `cvt`: its valid forms, and the handlers.

use cuda_ptx::{Modifier, ScalarType as T, Word as W};
use half::{bf16, f16};

use crate::decode::form::{Form, round_code};
use crate::exec::convert::{
    ClampInt, DoubleToSingle, E4M3, E5M2, FTZ, FloatToFloat, FloatToInt, FromBytes, INTEGRAL,
    IntToFloat, IntToInt, PackIntegers, RELU, ROUND, SAT, SATFINITE, Same, ShiftUp, TARGET,
    TARGET_SIGNED, ToBytes, ToHalf, ToHalves, ToTf32, Widen,
};
use crate::exec::map::{self, Pick};

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
pub(crate) fn cvt(form: &mut Form<'_>) -> Option<Pick> {
    if form.take(W::Pack) {
        return pack(form);
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
    imm |= round.map_or(0, round_code) << ROUND;
    imm |= if rounding == Rounding::Integral { INTEGRAL } else { 0 };
    if form.has_ty(T::E4M3x2) || form.has_ty(T::E5M2x2) {
        return bytes(form, imm).filter(|_| round == Some(W::Rn));
    }
    let (to, from) = (form.ty()?, form.ty()?);
    if !exists(to, from, rounding, modifiers) {
        return None;
    }
    // A conversion with f16 has no f32 denormals as operands or results.
    let imm = if from == T::F16 { imm & !FTZ } else { imm };
    let pick = match (to, from, is_integer(to), is_integer(from)) {
        (T::F16x2 | T::BF16x2 | T::TF32, ..) => wide(to, rounding),
        (_, _, true, true) if imm & SAT != 0 => clamped(to, from),
        (_, _, true, true) => integer(to, from),
        (_, _, false, true) => {
            with_ints!(from IntToFloat, from, to, [F16: f16, BF16: bf16, F32: f32, F64: f64])
        }
        (_, _, true, false) => {
            from_each!(FloatToInt, from, to, [F16: f16, BF16: bf16, F32: f32, F64: f64],
                [U8: u8, S8: i8, U16: u16, S16: i16, U32: u32, S32: i32, U64: u64, S64: i64])
        }
        _ => float(to, from, imm),
    };
    pick.map(|p| p.with(imm | p.imm))
}

/// Selects a conversion between integers. A 32-bit lane holds a narrower integer sign- or zero-extended. So most
/// conversions only extend the narrower of the two types, and share handlers.
fn integer(to: T, from: T) -> Option<Pick> {
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
fn clamped(to: T, from: T) -> Option<Pick> {
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

fn float(to: T, from: T, imm: u64) -> Option<Pick> {
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

macro_rules! by_byte {
    ($make:ident, $op:ident, $format:expr) => {
        if $format == T::E4M3x2 { map::$make::<$op<E4M3>>() } else { map::$make::<$op<E5M2>>() }
    };
}

/// Selects the handler of a `cvt` to or from bytes. `form` must still contain its types.
fn bytes(form: &mut Form<'_>, imm: u64) -> Option<Pick> {
    let format = form.ty_of(&[T::E4M3x2, T::E5M2x2])?;
    let from_bytes =
        form.instruction().modifiers.last().is_some_and(|last| *last == Modifier::Type(format));
    let (pick, needed) = match (form.ty()?, from_bytes) {
        (T::F16x2, true) => (by_byte!(unary, FromBytes, format), 0),
        (T::F16x2, false) => (by_byte!(unary, ToBytes, format), SATFINITE),
        (T::F32, false) => (by_byte!(binary, ToBytes, format), SATFINITE),
        _ => return None,
    };
    (imm & !RELU == needed).then(|| pick.with(imm))
}

/// Selects the handler of a `cvt` from f32 to two halves or tf32.
fn wide(to: T, rounding: Rounding) -> Option<Pick> {
    match (to, rounding) {
        (T::F16x2, _) => Some(map::binary::<ToHalves<f16>>()),
        (T::BF16x2, _) => Some(map::binary::<ToHalves<bf16>>()),
        (T::TF32, Rounding::Away) => Some(map::unary::<ToTf32<true>>()),
        (T::TF32, _) => Some(map::unary::<ToTf32<false>>()),
        _ => None,
    }
}

/// Selects the handler of a `cvt.pack`.
fn pack(form: &mut Form<'_>) -> Option<Pick> {
    if !form.take(W::Sat) {
        return None;
    }
    let to = form.ty_of(&[T::U2, T::S2, T::U4, T::S4, T::U8, T::S8, T::U16, T::S16])?;
    let (from, above) = (form.ty()?, form.ty());
    let pick = match to {
        T::U16 => map::ternary::<PackIntegers<16, false>>(),
        T::S16 => map::ternary::<PackIntegers<16, true>>(),
        T::U8 => map::ternary::<PackIntegers<8, false>>(),
        T::S8 => map::ternary::<PackIntegers<8, true>>(),
        T::U4 => map::ternary::<PackIntegers<4, false>>(),
        T::S4 => map::ternary::<PackIntegers<4, true>>(),
        T::U2 => map::ternary::<PackIntegers<2, false>>(),
        _ => map::ternary::<PackIntegers<2, true>>(),
    };
    let whole = to.size() == 2;
    if whole {
        form.append_zero();
    }
    let known = from == T::S32 && above == if whole { None } else { Some(T::B32) };
    known.then_some(pick)
}

/// The rounding modifier of a `cvt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounding {
    None,
    /// `rn` or `rz`.
    Common,
    /// `rm` or `rp`.
    Directed,
    /// `rni` and the other integer roundings.
    Integral,
    /// `rna`.
    Away,
}

/// Returns whether `cvt` between these types permits this rounding and these modifiers. A form that an assembler
/// rejects has no defined meaning.
fn exists(to: T, from: T, rounding: Rounding, modifiers: u64) -> bool {
    use Rounding::{Away, Common, Integral, None};
    use T::{BF16, BF16x2, F16, F16x2, F32, F64, TF32};
    let (rounded, mut allowed) = match (to, from) {
        (F32, F32) => (matches!(rounding, None | Integral), FTZ | SAT),
        (F16, F16) | (F64, F64) => (matches!(rounding, None | Integral), SAT),
        (BF16, BF16) => (matches!(rounding, None | Integral), 0),
        // Narrowing conversions.
        (F16, F32) => (is_float(rounding), FTZ | SAT),
        (BF16, F32) => (is_float(rounding), FTZ),
        (F32, F64) => (is_float(rounding), FTZ | SAT),
        (F16, F64) => (is_float(rounding), SAT),
        (BF16, F64) => (is_float(rounding), 0),
        (F16x2 | BF16x2, F32) => (rounding == Common, RELU | SATFINITE),
        (TF32, F32) if rounding == Away => (true, SATFINITE),
        (TF32, F32) => (rounding == Common, RELU),
        // Widening conversions, and those between halves. Those with bf16 may have a rounding.
        (F32, F16) | (F64, F32) => (rounding == None, FTZ | SAT),
        (F64, F16) => (rounding == None, SAT),
        (F32, BF16) => (rounding == None || is_float(rounding), FTZ),
        (F64 | F16, BF16) | (BF16, F16) => (rounding == None || is_float(rounding), 0),
        // Conversions from or to integers.
        (F32, _) if is_integer(from) => (is_float(rounding), FTZ | SAT),
        (F16 | F64, _) if is_integer(from) => (is_float(rounding), SAT),
        (BF16, _) if is_integer(from) => (is_float(rounding) && from.size() > 1, 0),
        (_, F32) if is_integer(to) => (rounding == Integral, FTZ | SAT),
        (_, F16 | F64) if is_integer(to) => (rounding == Integral, SAT),
        (_, BF16) if is_integer(to) => (rounding == Integral && to.size() > 1, 0),
        _ if is_integer(to) && is_integer(from) => {
            (rounding == None, if holds(to, from) { 0 } else { SAT })
        }
        _ => return false,
    };
    // These two modifiers exclude the others in conversions to a half.
    if matches!((to, from), (F16 | BF16, F32)) && modifiers & (RELU | SATFINITE) != 0 {
        allowed = if rounding == Common { RELU | SATFINITE } else { 0 };
    }
    rounded && modifiers & !allowed == 0
}

fn is_float(rounding: Rounding) -> bool {
    matches!(rounding, Rounding::Common | Rounding::Directed)
}

fn is_integer(ty: T) -> bool {
    is_signed(ty) || matches!(ty, T::U8 | T::U16 | T::U32 | T::U64)
}

fn is_signed(ty: T) -> bool {
    matches!(ty, T::S8 | T::S16 | T::S32 | T::S64)
}

/// Returns whether `to` can represent all values of `from`.
fn holds(to: T, from: T) -> bool {
    match (is_signed(to), is_signed(from)) {
        (false, true) => false,
        (true, false) => to.size() > from.size(),
        _ => to.size() >= from.size(),
    }
}
