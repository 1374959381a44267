//! Powers of two and logarithms.

use super::fixed::truncated;
use super::tables::{EX2, LG2};
use super::{FRACTION, INFINITY, NAN, NORMAL, ONE, SIGN, unless};

/// Returns `2^x`.
#[inline(always)]
pub(crate) fn ex2(x: u32) -> u32 {
    let magnitude = x & !SIGN;
    // In units of 2^-23, truncated. From 2^8 on, the result is 0 or infinite in any case.
    let exponent = (magnitude >> 23) as i32;
    let significant = x & FRACTION | NORMAL;
    let shifted = if exponent < 127 {
        significant >> (127 - exponent).min(31)
    } else {
        significant << (exponent - 127).min(7)
    };
    let steps = unless(shifted, exponent > 134, 0x7FFF_FFFF) as i32;
    // The unit negates a number with a fraction by its complement.
    let whole = steps & FRACTION as i32 == 0;
    let negative = !steps + i32::from(whole);
    let steps = if x == magnitude { steps } else { negative };
    let fraction = steps as u32 & FRACTION;
    let t = EX2.interpolate(fraction >> 17, fraction & 0x1_FFFF);
    let exponent = (steps >> 23) + 126;
    let bits = (exponent << 23).wrapping_add((t >> 17) as i32) as u32;
    let bits = unless(bits, exponent < 0, 0);
    let bits = unless(bits, exponent > 253, INFINITY);
    unless(bits, magnitude > INFINITY, NAN)
}

/// Returns `log2(x)`.
#[inline(always)]
pub(crate) fn lg2(x: u32) -> u32 {
    let fraction = x & FRACTION;
    // In units of 2^-36.
    let t = LG2.interpolate(fraction >> 17, fraction & 0x1_FFFF) >> 2;
    let sum = (i64::from((x >> 23) as i32 - 127) << 36) + t;
    // The unit negates by the complement.
    let magnitude = if sum < 0 { !sum } else { sum };
    let bits = truncated(magnitude, 36) | (sum >> 63) as u32 & SIGN;
    let bits = unless(bits, x == ONE, 0);
    let bits = unless(bits, x == INFINITY, INFINITY);
    let bits = unless(bits, x & !SIGN < NORMAL, SIGN | INFINITY);
    let negative = (x != x & !SIGN) & (x & !SIGN >= NORMAL);
    unless(bits, (x & !SIGN > INFINITY) | negative, NAN)
}
