//! Reciprocals and square roots.

use super::tables::{RCP, RSQ, SQRT};
use super::{FRACTION, INFINITY, NAN, NORMAL, SIGN, unless};

/// The upper words of the infinite f64 and of the smallest normal f64, and the mask of the fraction bits.
const INFINITY64: u32 = 0x7FF0_0000;
const NORMAL64: u32 = 0x0010_0000;
const FRACTION64: u32 = NORMAL64 - 1;

/// Returns the segment and the argument for tables of 64 segments per octave: the fraction's upper 6 and lower 17 bits.
#[inline(always)]
fn of_64(fraction: u32) -> (u32, u32) {
    (fraction >> 17, fraction & 0x1_FFFF)
}

/// Returns `1 / x`.
#[inline(always)]
pub(crate) fn rcp(x: u32) -> u32 {
    let (magnitude, sign) = (x & !SIGN, x & SIGN);
    let fraction = x & FRACTION;
    let t = RCP.interpolate(fraction >> 16, (fraction & 0xFFFF) << 1);
    // In 2^23..=2^24. The upper bound occurs only for a fraction of 0, and carries into the exponent.
    let mantissa = (t >> 17) as i32;
    let bits = ((252 - (magnitude >> 23) as i32) << 23) + mantissa;
    let bits = unless(bits as u32, bits < NORMAL as i32, 0);
    let bits = unless(bits, magnitude < NORMAL, INFINITY);
    unless(bits | sign, magnitude > INFINITY, NAN)
}

/// Returns `sqrt(x)`.
#[inline(always)]
pub(crate) fn sqrt(x: u32) -> u32 {
    let (segment, below) = of_64(x & FRACTION);
    let t = SQRT.interpolate(octave(x) | segment, below);
    let bits = (((x >> 23) + 125) >> 1 << 23).wrapping_add((t >> 17) as u32);
    let bits = unless(bits, x == INFINITY, INFINITY);
    let bits = unless(bits, x & !SIGN < NORMAL, x & SIGN);
    unless(bits, is_negative_or_nan(x), NAN)
}

/// Returns `1 / sqrt(x)`.
#[inline(always)]
pub(crate) fn rsq(x: u32) -> u32 {
    let (segment, below) = of_64(x & FRACTION);
    let t = RSQ.interpolate(octave(x) | segment, below);
    // At 1 the table's value is too small by less than a result's last bit.
    let one = octave(x) | (x & FRACTION) == 0;
    let mantissa = unless((t >> 17) as u32, one, 2 * NORMAL);
    let bits = (252 - (((x >> 23) + 127) >> 1) as i32) as u32;
    let bits = (bits << 23).wrapping_add(mantissa);
    let bits = unless(bits, x == INFINITY, 0);
    let bits = unless(bits, x & !SIGN < NORMAL, INFINITY | x & SIGN);
    unless(bits, is_negative_or_nan(x), NAN)
}

/// Returns the first segment of the argument's octave. The tables of roots cover two octaves. Segment 64 starts the
/// upper one, with the even exponent fields.
#[inline(always)]
fn octave(x: u32) -> u32 {
    (!x >> 23 & 1) << 6
}

#[inline(always)]
fn is_negative_or_nan(x: u32) -> bool {
    let magnitude = x & !SIGN;
    (magnitude > INFINITY) | ((x != magnitude) & (magnitude >= NORMAL))
}

/// Returns the upper word of `1 / x` for the upper word of an f64.
#[inline(always)]
pub(crate) fn rcp64(x: u32) -> u32 {
    let (magnitude, sign) = (x & !SIGN, x & SIGN);
    let fraction = x & FRACTION64;
    let t = RCP.interpolate(fraction >> 13, (fraction & 0x1FFF) << 4);
    let bits = ((2044 - (magnitude >> 20) as i32) << 20) + (t >> 20) as i32;
    let bits = unless(bits as u32, bits < NORMAL64 as i32, 0);
    let bits = unless(bits, magnitude < NORMAL64, INFINITY64);
    unless(bits | sign, magnitude > INFINITY64, NAN)
}

/// Returns the upper word of `1 / sqrt(x)` for the upper word of an f64.
#[inline(always)]
pub(crate) fn rsq64(x: u32) -> u32 {
    let (magnitude, fraction) = (x & !SIGN, x & FRACTION64);
    let octave = (!x >> 20 & 1) << 6;
    let t = RSQ.interpolate(octave | fraction >> 14, (fraction & 0x3FFF) << 3);
    let mantissa = unless((t >> 20) as u32, octave | fraction == 0, 2 * NORMAL64);
    let bits = ((2044 - (((x >> 20) + 1023) >> 1) as i32) as u32) << 20;
    let bits = unless(bits.wrapping_add(mantissa), x == INFINITY64, 0);
    let bits = unless(bits, magnitude < NORMAL64, INFINITY64 | x & SIGN);
    let negative = x != magnitude && magnitude >= NORMAL64;
    unless(bits, magnitude > INFINITY64 || negative, NAN)
}
