//! The hyperbolic tangent.

use super::fixed::truncated;
use super::tables::TANH;
use super::{FRACTION, INFINITY, NAN, ONE, SIGN, unless};

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
