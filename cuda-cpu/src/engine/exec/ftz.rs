//! `.ftz` where a result lies just below the normal numbers.
//!
//! A GPU makes zero what is below them when rounded to as many bits as a normal number has. Rounded as a denormal,
//! with a bit less, it may already have become the smallest normal number.

/// What brings the results that this is about among the normal numbers.
pub(super) const SCALE: f32 = 16_777_216.0;

/// The largest number below f32's normal ones that has as many bits as they have.
const BELOW: f64 = f32::MIN_POSITIVE as f64 * (1.0 - 1.0 / 16_777_216.0);

/// A result rounded to nearest, given also the one of operands times [`SCALE`]. Where those overflow it is not tiny.
#[inline(always)]
pub(super) fn nearest(result: f32, scaled: f32) -> f32 {
    let tiny = (result.abs() <= f32::MIN_POSITIVE) & (scaled.abs() < f32::MIN_POSITIVE * SCALE);
    let bits = result.to_bits();
    f32::from_bits(if tiny { bits & 0x8000_0000 } else { bits })
}

/// A directed rounding's result, given the exact value: `x` and something too small to change it of the sign of
/// `beyond`. What becomes a denormal is left as it is.
#[inline(always)]
pub(super) fn directed(result: f32, x: f64, beyond: f64) -> f32 {
    let away = if x > 0.0 { beyond > 0.0 } else { beyond < 0.0 };
    let tiny = (x.abs() < BELOW) | ((x.abs() == BELOW) & !away);
    let bits = result.to_bits();
    f32::from_bits(if tiny { bits & 0x8000_0000 } else { bits })
}
