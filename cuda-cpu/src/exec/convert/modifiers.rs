//! The modifiers of conversions.

use crate::exec::number::float::Scalar;
use crate::exec::number::lane::Kind;

/// `imm` bits. The code of the rounding mode is above them.
pub(crate) const FTZ: u64 = 1;
pub(crate) const SAT: u64 = 2;
pub(crate) const RELU: u64 = 4;
/// Rounds to an integral value, as in float-to-float conversions with `.rni`.
pub(crate) const INTEGRAL: u64 = 8;
/// Values that are too large become the largest finite number.
pub(crate) const SATFINITE: u64 = 16;
pub(crate) const ROUND: u32 = 5;

/// Returns whether the type is f16 or bf16.
pub(crate) const fn is_half<F: Scalar>() -> bool {
    matches!(F::KIND, Kind::W32)
}
