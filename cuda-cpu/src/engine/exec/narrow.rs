//! Formats narrower than f32: halves and bytes.

use super::rounding::Round;

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7F80_0000;
/// f32's smallest normal number.
const NORMAL: u32 = 0x0080_0000;

/// A floating-point format. Its largest finite number, what stands for infinity and its NaN are magnitudes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    bits: u32,
    fraction: u32,
    bias: i32,
    max: u32,
    infinity: u32,
    nan: u32,
}

impl Format {
    pub(super) const F16: Self =
        Self { bits: 16, fraction: 10, bias: 15, max: 0x7BFF, infinity: 0x7C00, nan: 0x7FFF };
    pub(super) const BF16: Self =
        Self { bits: 16, fraction: 7, bias: 127, max: 0x7F7F, infinity: 0x7F80, nan: 0x7FFF };
    /// Has no infinity.
    pub(super) const E4M3: Self =
        Self { bits: 8, fraction: 3, bias: 7, max: 0x7E, infinity: 0x7E, nan: 0x7F };
    pub(super) const E5M2: Self =
        Self { bits: 8, fraction: 2, bias: 15, max: 0x7B, infinity: 0x7C, nan: 0x7F };

    /// The bits of an f32, rounded once to this format. `finite`: what is too large becomes the largest
    /// number, infinity too. No branches.
    #[inline(always)]
    pub(super) fn round(self, x: u32, mode: Round, finite: bool) -> u32 {
        let (magnitude, negative) = (x & !SIGN, x & SIGN != 0);
        let implicit = if magnitude < NORMAL { 0 } else { NORMAL };
        let significant = magnitude & (NORMAL - 1) | implicit;
        // The exponent fields begin at 1; what lies below this format's is shifted out.
        let exponent = ((magnitude >> 23) as i32).max(1) - 127 + self.bias;
        let shift = (23 - self.fraction as i32 + (1 - exponent).max(0)).min(31) as u32;
        let away = match mode {
            Round::Up => !negative,
            Round::Down => negative,
            _ => false,
        };
        let below = (1 << (shift - 1)) - 1;
        let extra = match mode {
            Round::Nearest => below + (significant >> shift & 1),
            _ if away => 2 * below + 1,
            _ => 0,
        };
        // A carry out of the fraction is the next exponent.
        let exponent = ((exponent - 1).max(0) as u32) << self.fraction;
        let code = exponent + ((significant + extra) >> shift);
        let large = match mode {
            _ if finite => self.max,
            Round::Nearest => self.infinity,
            _ if away => self.infinity,
            _ => self.max,
        };
        let code = if code > self.max { large } else { code };
        let code = if magnitude == INFINITY && !finite { self.infinity } else { code };
        if magnitude > INFINITY {
            self.nan
        } else {
            code | (u32::from(negative) << (self.bits - 1))
        }
    }

    /// As the bits of an f32: exact; a NaN becomes the canonical one.
    #[inline(always)]
    pub(super) fn widen(self, x: u32) -> u32 {
        let magnitude = x & ((1 << (self.bits - 1)) - 1);
        let sign = (x >> (self.bits - 1) & 1) << 31;
        // With its fraction in place, only the exponent's bias is wrong; denormals come out right as well.
        let shifted = f32::from_bits(magnitude << (23 - self.fraction));
        let exact = shifted * f32::from_bits(((254 - self.bias) as u32) << 23);
        let bits = if magnitude == self.infinity && self.infinity != self.max {
            INFINITY
        } else {
            exact.to_bits()
        };
        let nan = magnitude > self.infinity.max(self.max);
        if nan { super::float::NAN32 } else { bits | sign }
    }
}
