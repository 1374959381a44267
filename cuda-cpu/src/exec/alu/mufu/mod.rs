//! The GPU's function unit (MUFU), bit for bit as on an H200: reciprocals, roots, powers of two, logarithms, sines and
//! hyperbolic tangents.
//!
//! The unit has a parabola for each segment of a function's argument. The upper bits of the argument's fraction select
//! the segment. The parabola is evaluated at the 17 bits below in integers, and the result is truncated to 24 bits.
//! `fit.py` derives the coefficients (26, 16 and 10 bits) from the results that `dump.py` reads from a GPU.
//! `tests/engine/sweep` compares the other functions.
//!
//! The functions take and return the bits of numbers. They flush denormal arguments to zero, except `tanh`, and
//! denormal results to zero. `approx` calls them and adds the code that compilers emit around the unit. The functions
//! have no branches, so that the compiler vectorises them.

#[rustfmt::skip]
mod tables;

use self::tables::{EX2, LG2, RCP, RSQ, SIN, SQRT, TANH};
use crate::exec::number::narrow::unless;

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7F80_0000;
const NAN: u32 = crate::exec::number::float::NAN32;
const ONE: u32 = 0x3F80_0000;
/// The smallest normal number.
const NORMAL: u32 = 0x0080_0000;
/// Mask of the fraction bits.
const FRACTION: u32 = NORMAL - 1;

/// The parabolas of a function, one for each segment of its argument: `C0 + C1 x + C2 S(x)`.
#[derive(Debug)]
struct Table<const N: usize> {
    /// Parameters of all segments: a rounding constant, and the binary exponents of the coefficients' units.
    constant: i64,
    steps: [u32; 3],
    segments: [[i32; 3]; N],
}

impl<const N: usize> Table<N> {
    /// Creates a table. Unused segments are zero.
    const fn new(constant: i64, steps: [u32; 3], rows: &[[i32; 3]]) -> Self {
        let mut segments = [[0; 3]; N];
        let mut i = 0;
        while i < rows.len() {
            segments[i] = rows[i];
            i += 1;
        }
        Self { constant, steps, segments }
    }

    /// Evaluates the parabola of `segment` (below `N`, a power of two) at `x`, a number of 17 bits.
    #[inline(always)]
    fn interpolate(&self, segment: u32, x: u32) -> i64 {
        let [c0, c1, c2] = self.segments[segment as usize % N];
        let product = |c: i32, x: u32| i64::from(c) * i64::from(x as i32);
        (i64::from(c0) << self.steps[0])
            + self.constant
            + product(c1, x << self.steps[1])
            + product(c2, square(x) << self.steps[2])
    }
}

/// Returns the upper 15 bits of the square of a 17-bit number. The unit omits all bit products below column 19.
#[inline(always)]
fn square(x: u32) -> u32 {
    let (upper, lower) = (x >> 9, x & 0x1FF);
    // The square of the upper bits lacks that of the lowest bit, and the square of the lower bits is omitted.
    let mut sum = (upper * upper) >> 1;
    for i in 1..8 {
        // The products of bit i with the lower bits.
        let set = ((upper << (31 - i)) as i32 >> 31) as u32;
        sum += (lower >> (9 - i)) & set;
    }
    sum
}

/// Returns `value / 2^unit`, truncated to 24 bits, as the bits of an f32. `value` is in 0..2^52.
#[inline(always)]
fn truncated(value: i64, unit: i32) -> u32 {
    /// An f64 with this exponent holds an integer in its low bits.
    const INTEGER: u64 = 0x4330_0000_0000_0000;
    let exact = f64::from_bits(INTEGER | value as u64) - f64::from_bits(INTEGER);
    let cut = f64::from_bits(exact.to_bits() & !0x1FFF_FFFF);
    let scale = f64::from_bits(((1023 - unit) as u64) << 52);
    ((cut * scale) as f32).to_bits()
}

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

/// Exponent fields of the first and last interpolated octave: arguments from 2^-8 to below 8.
const FIRST: i32 = 127 - 8;
const LAST: i32 = 127 + 2;
/// For each octave, its first segment and the number of fraction bits that select a segment.
const OCTAVES: [(u8, u8); 16] = octaves([0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3]);

const fn octaves(bits: [u8; 11]) -> [(u8, u8); 16] {
    let mut octaves = [(0, 0); 16];
    let (mut i, mut segment) = (0, 0);
    while i < bits.len() {
        octaves[i] = (segment, bits[i]);
        segment += 1 << bits[i];
        i += 1;
    }
    octaves
}

/// Returns `tanh(x)`. Denormals are not flushed.
#[inline(always)]
pub(crate) fn tanh(x: u32) -> u32 {
    let magnitude = x & !SIGN;
    let exponent = (magnitude >> 23) as i32;
    let octave = (exponent - FIRST).clamp(0, LAST - FIRST);
    let (first, bits) = OCTAVES[octave as usize % OCTAVES.len()];
    // The 17 bits below those that select the segment. Lower bits have no effect.
    let fraction = (x & FRACTION) << bits;
    let t = TANH.interpolate(u32::from(first) + (fraction >> 23), (fraction & FRACTION) >> 6);
    // Below 1/2, the tables are relative to the octave's upper end.
    let below = (126 - exponent).clamp(0, 8) as u32;
    let bits = truncated(t, 41).wrapping_sub(below << 23);
    let bits = unless(bits, exponent < FIRST, magnitude);
    let bits = unless(bits, exponent > LAST, ONE);
    unless(bits | x & SIGN, magnitude > INFINITY, NAN)
}
