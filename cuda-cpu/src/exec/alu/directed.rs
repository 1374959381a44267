//! `add`, `sub`, `mul` and `fma` in the directed rounding modes.
//!
//! `expf` and similar functions use them, so those of f32 have no branches and process a whole warp at once.

use super::float_modifiers::{FTZ, Modal, Mode, ROUND, SAT};
use crate::{
    exec::{
        macros::{binary, ternary},
        number::{
            float::Float,
            ftz,
            lane::Pair,
            nan::fma_nan,
            rounding::{self, Round},
        },
    },
    lanes::simd::Level,
};

binary! {
    #[top = D::ROUND_TOP] AddRound<D: Directed>: D, D => D, |a, b, imm| D::finish(D::round_add(D::start(a, imm), D::start(b, imm), imm), imm);
    #[top = D::ROUND_TOP] SubRound<D: Directed>: D, D => D, |a, b, imm| D::finish(D::round_add(D::start(a, imm), D::start(b, imm).negated(), imm), imm);
    #[top = D::ROUND_TOP] MulRound<D: Directed>: D, D => D, |a, b, imm| D::finish(D::round_mul(D::start(a, imm), D::start(b, imm), imm), imm);
}

ternary! {
    #[top = D::ROUND_TOP] FmaRound<D: Directed>: D, D, D => D, |a, b, c, imm| D::finish(D::round_fma(D::start(a, imm), D::start(b, imm), D::start(c, imm), imm), imm);
}

/// Returns the rounding mode in `imm`.
#[inline(always)]
pub(super) fn mode(imm: u64) -> Round {
    Round::from_code(imm >> ROUND)
}

/// Types with directed rounding. `imm` contains the mode and whether the instruction has `.ftz`.
pub(crate) trait Directed: Float {
    /// The highest level for which the operations are compiled.
    const ROUND_TOP: Level = Level::Base;
    fn round_add(a: Self, b: Self, imm: u64) -> Self;
    fn round_mul(a: Self, b: Self, imm: u64) -> Self;
    fn round_fma(a: Self, b: Self, c: Self, imm: u64) -> Self;
    #[inline(always)]
    fn start(x: Self, imm: u64) -> Self {
        Modal::<Self>::operand(x, imm)
    }
    #[inline(always)]
    fn finish(x: Self, imm: u64) -> Self {
        Modal::<Self>::result(x, imm & (FTZ | SAT))
    }
}

impl Directed for f32 {
    const ROUND_TOP: Level = Level::Avx512;
    #[inline(always)]
    fn round_add(a: Self, b: Self, imm: u64) -> Self {
        round_sum(f64::from(a), f64::from(b), imm)
    }
    #[inline(always)]
    fn round_mul(a: Self, b: Self, imm: u64) -> Self {
        // The product of two f32 is exact in f64.
        step(f64::from(a) * f64::from(b), 0.0, imm)
    }
    #[inline(always)]
    fn round_fma(a: Self, b: Self, c: Self, imm: u64) -> Self {
        round_sum(f64::from(a) * f64::from(b), f64::from(c), imm)
    }
}

impl Directed for f64 {
    fn round_add(a: Self, b: Self, imm: u64) -> Self {
        rounding::add_f64(a, b, mode(imm))
    }
    fn round_mul(a: Self, b: Self, imm: u64) -> Self {
        rounding::mul_f64(a, b, mode(imm))
    }
    fn round_fma(a: Self, b: Self, c: Self, imm: u64) -> Self {
        fma_nan(a, b, c, rounding::fma_f64(a, b, c, mode(imm)))
    }
}

impl Directed for Pair {
    #[inline(always)]
    fn round_add(a: Self, b: Self, imm: u64) -> Self {
        Self(f32::round_add(a.0, b.0, imm), f32::round_add(a.1, b.1, imm))
    }
    #[inline(always)]
    fn round_mul(a: Self, b: Self, imm: u64) -> Self {
        Self(f32::round_mul(a.0, b.0, imm), f32::round_mul(a.1, b.1, imm))
    }
    #[inline(always)]
    fn round_fma(a: Self, b: Self, c: Self, imm: u64) -> Self {
        Self(f32::round_fma(a.0, b.0, c.0, imm), f32::round_fma(a.1, b.1, c.1, imm))
    }
}

/// Returns `x + y` rounded to f32 in the direction of the mode.
#[inline(always)]
fn round_sum(x: f64, y: f64, imm: u64) -> f32 {
    let sum = x + y;
    // The rounding error of the sum (Knuth's TwoSum). It is NaN for infinities, which need no rounding.
    let t = sum - x;
    let lost = (x - (sum - t)) + (y - t);
    let r = step(sum, lost, imm);
    // An exact zero from operands that cancel is negative if rounding down.
    let cancels = sum == 0.0 && x.is_sign_negative() != y.is_sign_negative();
    if cancels && mode(imm) == Round::Down { -0.0 } else { r }
}

/// Rounds `x`, plus an infinitesimal with the sign of `beyond`, to f32.
#[inline(always)]
fn step(x: f64, beyond: f64, imm: u64) -> f32 {
    let nearest = x as f32;
    let lost = x - f64::from(nearest);
    let lost = if lost == 0.0 { beyond } else { lost };
    let mode = mode(imm);
    let (zero, down, up) = (mode == Round::Zero, mode == Round::Down, mode == Round::Up);
    let lower = (lost < 0.0) & (down | (zero & (nearest > 0.0)));
    let higher = (lost > 0.0) & (up | (zero & (nearest < 0.0)));
    let bits = nearest.to_bits();
    let away = bits.wrapping_add(1);
    let inwards = bits.wrapping_sub(1);
    let below = if nearest > 0.0 { inwards } else { away };
    let below = if nearest == 0.0 { 0x8000_0001 } else { below };
    let above = if nearest < 0.0 { inwards } else { away };
    let above = if nearest == 0.0 { 1 } else { above };
    let bits = if lower { below } else { bits };
    let r = f32::from_bits(if higher { above } else { bits });
    if imm & FTZ != 0 { ftz::directed(r, x, beyond) } else { r }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference functions with branches were compared with a GPU.
    #[test]
    fn agrees_with_branching_functions() {
        let special = [0.0, -0.0, 1.0, -1.5, f32::MAX, -f32::MAX, f32::INFINITY, f32::MIN_POSITIVE];
        let mut values = special.to_vec();
        values.extend([f32::from_bits(1), -f32::from_bits(3), f32::NAN, 3.3e-30, -7.7e29]);
        let mut state = 1u32;
        values.extend((0..40).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits(state)
        }));
        let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        for (imm, mode) in [Round::Zero, Round::Down, Round::Up].into_iter().enumerate() {
            let imm = (imm as u64 + 1) << ROUND;
            for &a in &values {
                for &b in &values {
                    let sum = (f32::round_add(a, b, imm), rounding::add_f32(a, b, mode));
                    assert!(same(sum.0, sum.1), "{a} + {b} {mode:?}: {sum:?}");
                    let product = (f32::round_mul(a, b, imm), rounding::mul_f32(a, b, mode));
                    assert!(same(product.0, product.1), "{a} * {b} {mode:?}: {product:?}");
                    for &c in &values {
                        let r = (f32::round_fma(a, b, c, imm), rounding::fma_f32(a, b, c, mode));
                        assert!(same(r.0, r.1), "{a} * {b} + {c} {mode:?}: {r:?}");
                    }
                }
            }
        }
    }
}
