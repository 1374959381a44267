//! The valid forms of `cvt`: the types, and for each pair the permitted roundings and modifiers. A form that an
//! assembler rejects has no defined meaning.

use cuda_ptx::ScalarType as T;

use crate::exec::convert::modifiers::{FTZ, RELU, SAT, SATFINITE};

/// The rounding modifier of a `cvt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
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

use Rounding::{Away, Common, Directed, Integral, None};

/// Returns whether `cvt` between these types permits this rounding and these modifiers.
pub(super) fn exists(to: T, from: T, rounding: Rounding, modifiers: u64) -> bool {
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
    matches!(rounding, Common | Directed)
}

pub(super) fn is_integer(ty: T) -> bool {
    is_signed(ty) || matches!(ty, T::U8 | T::U16 | T::U32 | T::U64)
}

pub(super) fn is_signed(ty: T) -> bool {
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
