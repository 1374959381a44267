//! `.ftz` for results just below the normal numbers.
//!
//! A GPU flushes a result that is below the normal numbers when it is rounded to the precision of a normal number.
//! Rounding as a denormal has a bit less of precision and may round such a result up to the smallest normal number.

/// A factor that makes these results normal.
pub(super) const SCALE: f32 = 16_777_216.0;

/// The largest number below the normal f32 numbers with the same precision.
const BELOW: f64 = f32::MIN_POSITIVE as f64 * (1.0 - 1.0 / 16_777_216.0);

/// Flushes a result rounded to nearest. `scaled` is the same result with operands multiplied by [`SCALE`]. If that
/// overflows, the result is not tiny.
#[inline(always)]
pub(super) fn nearest(result: f32, scaled: f32) -> f32 {
    let tiny = (result.abs() <= f32::MIN_POSITIVE) & (scaled.abs() < f32::MIN_POSITIVE * SCALE);
    let bits = result.to_bits();
    f32::from_bits(if tiny { bits & 0x8000_0000 } else { bits })
}

/// Flushes a result of directed rounding. The exact value is `x` plus an infinitesimal with the sign of `beyond`.
/// Results that are denormal are left unchanged.
#[inline(always)]
pub(in crate::exec) fn directed(result: f32, x: f64, beyond: f64) -> f32 {
    let away = if x > 0.0 { beyond > 0.0 } else { beyond < 0.0 };
    let tiny = (x.abs() < BELOW) | ((x.abs() == BELOW) & !away);
    let bits = result.to_bits();
    f32::from_bits(if tiny { bits & 0x8000_0000 } else { bits })
}
