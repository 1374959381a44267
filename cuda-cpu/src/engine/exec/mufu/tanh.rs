//! The hyperbolic tangent.

use super::fixed::truncated;
use super::tables::TANH;
use super::{FRACTION, INFINITY, NAN, ONE, SIGN, unless};

/// The exponent fields of the arguments whose results are interpolated: from 2^-8 up to 8.
const FIRST: i32 = 127 - 8;
const LAST: i32 = 127 + 2;
/// An octave's first segment, and how many bits of the fraction choose one.
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

/// `tanh(x)`. Denormals are kept.
#[inline(always)]
pub(crate) fn tanh(x: u32) -> u32 {
    let magnitude = x & !SIGN;
    let exponent = (magnitude >> 23) as i32;
    let octave = (exponent - FIRST).clamp(0, LAST - FIRST);
    let (first, bits) = OCTAVES[octave as usize % OCTAVES.len()];
    // 17 bits below those that choose the segment; the rest makes no difference.
    let fraction = (x & FRACTION) << bits;
    let t = TANH.interpolate(u32::from(first) + (fraction >> 23), (fraction & FRACTION) >> 6);
    // Below 1/2 the tables count in fractions of the octave's upper end.
    let below = (126 - exponent).clamp(0, 8) as u32;
    let bits = truncated(t, 41).wrapping_sub(below << 23);
    let bits = unless(bits, exponent < FIRST, magnitude);
    let bits = unless(bits, exponent > LAST, ONE);
    unless(bits | x & SIGN, magnitude > INFINITY, NAN)
}
