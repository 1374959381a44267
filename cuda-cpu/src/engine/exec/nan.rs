//! Which NaN results are.

/// The canonical NaN of f32 results.
pub(crate) const NAN32: u32 = 0x7FFF_FFFF;

/// On the bits: of `x.sqrt().is_nan()` over a vector LLVM makes `false` (rustc 1.95).
#[inline(always)]
pub(super) fn canonical_f32(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7FFF_FFFF > f32::INFINITY.to_bits() { NAN32 } else { bits })
}

/// The result of an f64's fma, with the NaN that a GPU gives: a factor's, the addend's, the other factor's. Which factor
/// stands first there is up to its assembler: both were seen, of the same PTX among other instructions.
#[inline(always)]
pub(super) fn fma_nan(a: f64, b: f64, c: f64, result: f64) -> f64 {
    let quiet = |x: f64, otherwise: f64| {
        if x.is_nan() { f64::from_bits(x.to_bits() | 1 << 51) } else { otherwise }
    };
    quiet(a, quiet(c, quiet(b, result)))
}
