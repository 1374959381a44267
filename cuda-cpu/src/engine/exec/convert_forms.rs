//! Which forms of `cvt` there are: the types, and for each pair the roundings and modifiers it may have. What
//! an assembler refuses has no meaning that could be computed.

use cuda_ptx::ScalarType as T;

use super::convert::{FTZ, RELU, SAT, SATFINITE};

/// A `cvt`'s rounding modifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    None,
    /// `rn`, `rz`.
    Common,
    /// `rm`, `rp`.
    Directed,
    /// `rni` and the like.
    Integral,
    /// `rna`.
    Away,
}

use Rounding::{Away, Common, Directed, Integral, None};

/// There is a `cvt` between these types with this rounding and no other modifiers than these.
pub(super) fn exists(to: T, from: T, rounding: Rounding, modifiers: u64) -> bool {
    use T::{BF16, BF16x2, F16, F16x2, F32, F64, TF32};
    let (rounded, mut allowed) = match (to, from) {
        (F32, F32) => (matches!(rounding, None | Integral), FTZ | SAT),
        (F16, F16) | (F64, F64) => (matches!(rounding, None | Integral), SAT),
        (BF16, BF16) => (matches!(rounding, None | Integral), 0),
        // Narrower.
        (F16, F32) => (is_float(rounding), FTZ | SAT),
        (BF16, F32) => (is_float(rounding), FTZ),
        (F32, F64) => (is_float(rounding), FTZ | SAT),
        (F16, F64) => (is_float(rounding), SAT),
        (BF16, F64) => (is_float(rounding), 0),
        (F16x2 | BF16x2, F32) => (rounding == Common, RELU | SATFINITE),
        (TF32, F32) if rounding == Away => (true, SATFINITE),
        (TF32, F32) => (rounding == Common, RELU),
        // Wider, or between the halves: where a bf16 is, a rounding may be written.
        (F32, F16) | (F64, F32) => (rounding == None, FTZ | SAT),
        (F64, F16) => (rounding == None, SAT),
        (F32, BF16) => (rounding == None || is_float(rounding), FTZ),
        (F64 | F16, BF16) | (BF16, F16) => (rounding == None || is_float(rounding), 0),
        // With integers.
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
    // To a half these two exclude the others.
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

fn is_signed(ty: T) -> bool {
    matches!(ty, T::S8 | T::S16 | T::S32 | T::S64)
}

/// All values of `from` are values of `to`.
fn holds(to: T, from: T) -> bool {
    match (is_signed(to), is_signed(from)) {
        (false, true) => false,
        (true, false) => to.size() > from.size(),
        _ => to.size() >= from.size(),
    }
}
