//! Sines and cosines of angles in units of turns.

use super::fixed::truncated;
use super::tables::SIN;
use super::{FRACTION, INFINITY, NAN, NORMAL, ONE, SIGN, unless};

/// Returns `sin(2 pi x)`.
#[inline(always)]
pub(crate) fn sin(x: u32) -> u32 {
    quarter(x, 0, x & SIGN)
}

/// Returns `cos(2 pi x)`.
#[inline(always)]
pub(crate) fn cos(x: u32) -> u32 {
    quarter(x, 1, 0)
}

/// Returns the sine of `x` plus a number of quarter turns, with the given sign.
#[inline(always)]
fn quarter(x: u32, ahead: u32, sign: u32) -> u32 {
    let magnitude = x & !SIGN;
    // In units of 2^-25 turns, truncated. Whole turns are dropped.
    let exponent = (magnitude >> 23) as i32;
    let significant = x & FRACTION | NORMAL;
    let steps = if exponent < 125 {
        significant >> (125 - exponent).min(31)
    } else {
        significant << (exponent - 125).min(25)
    };
    let place = (steps >> 23) + ahead;
    // In decreasing quarters, the unit takes the complement.
    let angle = (steps ^ 0u32.wrapping_sub(place & 1)) & FRACTION;
    let t = SIN.interpolate(angle >> 17, angle & 0x1_FFFF);
    let bits = truncated(t, 38).min(ONE) | sign ^ (place << 30 & SIGN);
    unless(bits, magnitude >= INFINITY, NAN)
}
