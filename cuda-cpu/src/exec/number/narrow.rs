//! Formats narrower than f32: halves and bytes.

use super::float::NAN32;
use super::rounding::Round;

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7F80_0000;
/// The smallest normal f32 number.
const NORMAL: u32 = 0x0080_0000;

/// Returns `other` if `instead` is true, otherwise `bits`.
#[inline(always)]
pub(in crate::exec) fn unless(bits: u32, instead: bool, other: u32) -> u32 {
    // Not an `if`: the compiler would move the computation of `bits` behind a branch, and then not vectorise it.
    let mask = 0u32.wrapping_sub(u32::from(instead));
    bits & !mask | other & mask
}

/// A floating-point format. `max`, `infinity` and `nan` are magnitudes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    bits: u32,
    fraction: u32,
    bias: i32,
    max: u32,
    infinity: u32,
    nan: u32,
}

impl Format {
    pub(in crate::exec) const F16: Self =
        Self { bits: 16, fraction: 10, bias: 15, max: 0x7BFF, infinity: 0x7C00, nan: 0x7FFF };
    pub(in crate::exec) const BF16: Self =
        Self { bits: 16, fraction: 7, bias: 127, max: 0x7F7F, infinity: 0x7F80, nan: 0x7FFF };
    /// E4M3 has no infinity.
    pub(in crate::exec) const E4M3: Self =
        Self { bits: 8, fraction: 3, bias: 7, max: 0x7E, infinity: 0x7E, nan: 0x7F };
    pub(in crate::exec) const E5M2: Self =
        Self { bits: 8, fraction: 2, bias: 15, max: 0x7B, infinity: 0x7C, nan: 0x7F };

    /// Rounds the bits of an f32 once to this format. With `finite`, values that are too large, and infinity, become
    /// the largest finite number. The function has no branches.
    #[inline(always)]
    pub(in crate::exec) fn round(self, x: u32, mode: Round, finite: bool) -> u32 {
        let (magnitude, negative) = (x & !SIGN, x & SIGN != 0);
        let significant = magnitude & (NORMAL - 1) | unless(NORMAL, magnitude < NORMAL, 0);
        // The exponent fields start at 1. Values below this format's normal numbers are shifted right.
        let exponent = ((magnitude >> 23) as i32).max(1) - 127 + self.bias;
        let shift = (23 - self.fraction as i32 + (1 - exponent).max(0)).min(31) as u32;
        let nearest = mode == Round::Nearest;
        let away = (mode == Round::Up) & !negative | (mode == Round::Down) & negative;
        let below = (1 << (shift - 1)) - 1;
        let extra = unless(0, away, 2 * below + 1);
        let extra = unless(extra, nearest, below + (significant >> shift & 1));
        // A carry out of the fraction increments the exponent.
        let exponent = ((exponent - 1).max(0) as u32) << self.fraction;
        let code = exponent + ((significant + extra) >> shift);
        let large = unless(self.max, (nearest | away) & !finite, self.infinity);
        let code = unless(code, code > self.max, large);
        let code = unless(code, (magnitude == INFINITY) & !finite, self.infinity);
        let sign = u32::from(negative) << (self.bits - 1);
        unless(code | sign, magnitude > INFINITY, self.nan)
    }

    /// Returns the value as the bits of an f32. The conversion is exact, and a NaN becomes the canonical one.
    #[inline(always)]
    pub(in crate::exec) fn widen(self, x: u32) -> u32 {
        let magnitude = x & ((1 << (self.bits - 1)) - 1);
        let sign = (x >> (self.bits - 1) & 1) << 31;
        let shifted = magnitude << (23 - self.fraction);
        let normal = shifted + (((127 - self.bias) as u32) << 23);
        // A denormal is the difference of a number with the smallest normal exponent and the smallest normal number.
        let least = ((128 - self.bias) as u32) << 23;
        let rest = f32::from_bits(least | shifted) - f32::from_bits(least);
        let denormal = (self.bias < 127) & (magnitude >> self.fraction == 0);
        let exact = unless(normal, denormal, rest.to_bits());
        let infinite = (magnitude == self.infinity) & (self.infinity != self.max);
        let bits = unless(exact, infinite, INFINITY);
        unless(bits | sign, magnitude > self.infinity, NAN32)
    }
}
