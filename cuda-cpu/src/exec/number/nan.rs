//! The NaNs of results.

/// The canonical NaN of f32 results.
pub(crate) const NAN32: u32 = 0x7FFF_FFFF;

/// Replaces a NaN by the canonical one. Tests the bits, because LLVM folds a vector `x.sqrt().is_nan()` to `false`
/// (rustc 1.95).
#[inline(always)]
pub(super) fn canonical_f32(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7FFF_FFFF > f32::INFINITY.to_bits() { NAN32 } else { bits })
}

/// Returns the result of an f64 `fma` with a GPU's NaN. The first NaN of a factor, the addend and the other factor is
/// taken. The assembler decides which factor comes first: both orders were seen for the same PTX among other
/// instructions.
#[inline(always)]
pub(in crate::exec) fn fma_nan(a: f64, b: f64, c: f64, result: f64) -> f64 {
    let quiet = |x: f64, otherwise: f64| {
        if x.is_nan() { f64::from_bits(x.to_bits() | 1 << 51) } else { otherwise }
    };
    quiet(a, quiet(c, quiet(b, result)))
}
