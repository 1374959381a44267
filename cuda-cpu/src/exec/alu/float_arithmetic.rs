//! Floating-point arithmetic of all types: `add`, `sub`, `mul`, `fma`, `min`, `max`, `neg`, `abs` and `copysign`, with
//! the modifiers `.ftz`, `.sat` and `.relu` and the directed rounding modes.

use std::marker::PhantomData;

use half::{bf16, f16};

use crate::exec::map::{binary_ops, ternary_ops, unary_ops};
use crate::exec::number::float::{Float, Scalar, flush_directed, fma_nan};
use crate::exec::number::lane::{Lane, Pair, Two};
use crate::exec::number::rounding::{self, Round};
use crate::lanes::simd::Level;

/// `imm` bits of an operation whose modifiers are evaluated at run time. The code of the rounding mode is above them.
pub(crate) const FTZ: u64 = 1;
pub(crate) const SAT: u64 = 2;
pub(crate) const RELU: u64 = 4;
pub(crate) const ROUND: u32 = 4;

/// A type with the effect of modifiers on operands and results.
pub(crate) trait Mode: 'static {
    type F: Float;
    fn operand(x: Self::F, imm: u64) -> Self::F;
    fn result(x: Self::F, imm: u64) -> Self::F;
    /// Operations whose results are not always flushed correctly by [`result`](Self::result) alone.
    #[inline(always)]
    fn mul(a: Self::F, b: Self::F, imm: u64) -> Self::F {
        Self::result(a.mul(b), imm)
    }
    #[inline(always)]
    fn fma(a: Self::F, b: Self::F, c: Self::F, imm: u64) -> Self::F {
        Self::result(a.fma(b, c), imm)
    }
}

/// No modifiers.
pub(crate) struct Plain<F>(PhantomData<F>);
/// `.ftz` alone.
pub(crate) struct Flush<F>(PhantomData<F>);
/// The modifiers in `imm`.
pub(crate) struct Modal<F>(PhantomData<F>);

impl<F: Float> Mode for Plain<F> {
    type F = F;
    #[inline(always)]
    fn operand(x: F, _: u64) -> F {
        x
    }
    #[inline(always)]
    fn result(x: F, _: u64) -> F {
        x.canonical()
    }
}

impl<F: Float> Mode for Flush<F> {
    type F = F;
    #[inline(always)]
    fn operand(x: F, _: u64) -> F {
        x.flush()
    }
    #[inline(always)]
    fn result(x: F, _: u64) -> F {
        x.flush().canonical()
    }
    #[inline(always)]
    fn mul(a: F, b: F, _: u64) -> F {
        a.flush().mul_ftz(b.flush()).canonical()
    }
    #[inline(always)]
    fn fma(a: F, b: F, c: F, _: u64) -> F {
        a.flush().fma_ftz(b.flush(), c.flush()).canonical()
    }
}

impl<F: Float> Mode for Modal<F> {
    type F = F;
    #[inline(always)]
    fn operand(x: F, imm: u64) -> F {
        if imm & FTZ != 0 { x.flush() } else { x }
    }
    #[inline(always)]
    fn result(x: F, imm: u64) -> F {
        let x = if imm & FTZ != 0 { x.flush() } else { x };
        let x = if imm & SAT != 0 { x.saturate() } else { x };
        let x = if imm & RELU != 0 { x.max_nan(F::default()) } else { x };
        x.canonical()
    }
    #[inline(always)]
    fn mul(a: F, b: F, imm: u64) -> F {
        match imm & FTZ != 0 {
            true => Self::result(a.flush().mul_ftz(b.flush()), imm),
            false => Self::result(a.mul(b), imm),
        }
    }
    #[inline(always)]
    fn fma(a: F, b: F, c: F, imm: u64) -> F {
        match imm & FTZ != 0 {
            true => Self::result(a.flush().fma_ftz(b.flush(), c.flush()), imm),
            false => Self::result(a.fma(b, c), imm),
        }
    }
}

unary_ops! {
    Neg<M: Mode>: M::F => M::F, |a, imm| M::operand(a, imm).negated().canonical();
    Abs<M: Mode>: M::F => M::F, |a, imm| M::operand(a, imm).abs().canonical();
}

binary_ops! {
    Add<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).add(M::operand(b, imm)), imm);
    Sub<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).sub(M::operand(b, imm)), imm);
    Mul<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::mul(a, b, imm);
    Min<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).min(M::operand(b, imm)), imm);
    Max<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).max(M::operand(b, imm)), imm);
    MinNan<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).min_nan(M::operand(b, imm)), imm);
    MaxNan<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).max_nan(M::operand(b, imm)), imm);
    CopySign<F: Float>: F, F => F, |sign, a| a.with_sign_of(sign);
}

ternary_ops! {
    Fma<M: Mode>: M::F, M::F, M::F => M::F, |a, b, c, imm| M::fma(a, b, c, imm);
}

binary_ops! {
    #[top = D::ROUND_TOP] AddRound<D: Directed>: D, D => D, |a, b, imm| D::finish(D::round_add(D::start(a, imm), D::start(b, imm), imm), imm);
    #[top = D::ROUND_TOP] SubRound<D: Directed>: D, D => D, |a, b, imm| D::finish(D::round_add(D::start(a, imm), D::start(b, imm).negated(), imm), imm);
    #[top = D::ROUND_TOP] MulRound<D: Directed>: D, D => D, |a, b, imm| D::finish(D::round_mul(D::start(a, imm), D::start(b, imm), imm), imm);
}

ternary_ops! {
    #[top = D::ROUND_TOP] FmaRound<D: Directed>: D, D, D => D, |a, b, c, imm| D::finish(D::round_fma(D::start(a, imm), D::start(b, imm), D::start(c, imm), imm), imm);
}

/// Returns the rounding mode in `imm`.
#[inline(always)]
fn mode(imm: u64) -> Round {
    Round::from_code(imm >> ROUND)
}

/// Types with directed rounding. `imm` contains the mode and whether the instruction has `.ftz`.
///
/// `expf` and similar functions use the operations, so those of f32 have no branches and process a whole warp at once.
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
    if imm & FTZ != 0 { flush_directed(r, x, beyond) } else { r }
}

/// `imm` bits of [`XorSign`] and [`Three`], above those of the modifiers.
pub(crate) const MAX: u64 = 1 << 8;
pub(crate) const PROPAGATE: u64 = 1 << 9;
pub(crate) const MAGNITUDES: u64 = 1 << 10;

/// A type and its sign bits.
trait Signs: Float<Raw = u32> {
    const SIGNS: u32;
}

macro_rules! signs {
    ($($ty:ty: $signs:expr;)*) => { $(
        impl Signs for $ty {
            const SIGNS: u32 = $signs;
        }
    )* };
}

signs! {
    f32: 0x8000_0000;
    f16: 0x8000;
    bf16: 0x8000;
    Two<f16>: 0x8000_8000;
    Two<bf16>: 0x8000_8000;
}

#[inline(always)]
fn extreme<F: Float>(a: F, b: F, imm: u64) -> F {
    match (imm & MAX != 0, imm & PROPAGATE != 0) {
        (false, false) => a.min(b),
        (true, false) => a.max(b),
        (false, true) => a.min_nan(b),
        (true, true) => a.max_nan(b),
    }
}

#[inline(always)]
fn signed<F: Signs>(magnitude: F, a: F, b: F) -> F {
    let signs = (a.to_raw() ^ b.to_raw()) & F::SIGNS;
    // A NaN result is canonical, without a sign.
    F::from_raw((magnitude.to_raw() & !F::SIGNS) | signs).canonical()
}

#[inline(always)]
fn three<F: Float>(a: F, b: F, c: F, imm: u64) -> F {
    let of = |x: F| {
        let x = Modal::<F>::operand(x, imm);
        if imm & MAGNITUDES != 0 { x.abs() } else { x }
    };
    extreme(extreme(of(a), of(b), imm), of(c), imm)
}

// `.xorsign.abs`: the extreme of the magnitudes, with the sign of the product.
binary_ops! {
    #[rare] XorSign<F: Signs>: F, F => F, |a, b, imm| {
        let (a, b) = (Modal::<F>::operand(a, imm), Modal::<F>::operand(b, imm));
        signed(extreme(a.abs(), b.abs(), imm), a, b)
    };
}

// The extreme of three operands.
ternary_ops! {
    #[rare] Three<F: Float>: F, F, F => F, |a, b, c, imm| three(a, b, c, imm);
}

/// The `imm` bit of [`FmaHalves`] for `.oob`, above those of the modifiers.
pub(crate) const INSIDE: u64 = 1 << 8;

/// A half or two packed halves.
pub(crate) trait Halves: Float<Raw = u32> {
    /// Returns `a * b + c`, rounded once.
    fn fma_in_mode(a: Self, b: Self, c: Self, mode: Round) -> Self;
}

impl<H: Scalar<Raw = u32>> Halves for H {
    fn fma_in_mode(a: Self, b: Self, c: Self, mode: Round) -> Self {
        // The product is exact. A sum rounded to odd keeps what the second rounding needs.
        let (product, c) = (a.to_f64() * b.to_f64(), c.to_f64());
        let exact = product + c == 0.0;
        Self::round_from(rounding::add_f64(product, c, if exact { mode } else { Round::Odd }), mode)
    }
}

macro_rules! two {
    ($($half:ty),*) => { $(
        impl Halves for Two<$half> {
            fn fma_in_mode(a: Self, b: Self, c: Self, mode: Round) -> Self {
                Self(<$half>::fma_in_mode(a.0, b.0, c.0, mode), <$half>::fma_in_mode(a.1, b.1, c.1, mode))
            }
        }
    )* };
}

two!(f16, bf16);

/// Returns a mask of the parts that equal the out-of-bounds mark. Results with such a factor are zero.
fn outside(raw: u32) -> u32 {
    const MARK: u32 = 0xFFFF;
    let part = |x: u32| if x == MARK { MARK } else { 0 };
    part(raw & 0xFFFF) | part(raw >> 16) << 16
}

// In a directed rounding mode, or with out-of-bounds values of a tensor (`.oob`).
ternary_ops! {
    #[rare] FmaHalves<H: Halves>: H, H, H => H, |a, b, c, imm| {
        let mode = Round::from_code(imm >> ROUND & 3);
        let sum = if mode == Round::Nearest { a.fma(b, c) } else { H::fma_in_mode(a, b, c, mode) };
        let sum = Modal::<H>::result(sum, imm);
        let outside = if imm & INSIDE != 0 { outside(a.to_raw()) | outside(b.to_raw()) } else { 0 };
        H::from_raw(sum.to_raw() & !outside)
    };
}

/// A half type. All its values are exact in f32.
pub(crate) trait Half: Lane<Raw = u32> + Into<f32> {}
impl Half for f16 {}
impl Half for bf16 {}

#[inline(always)]
fn sum(a: f32, c: f32, imm: u64) -> f32 {
    let nearest = imm >> ROUND == 0;
    Modal::<f32>::result(if nearest { a + c } else { f32::round_add(a, c, imm) }, imm & SAT)
}

#[inline(always)]
fn product_sum(a: f32, b: f32, c: f32, imm: u64) -> f32 {
    let nearest = imm >> ROUND == 0;
    let r = if nearest { Float::fma(a, b, c) } else { f32::round_fma(a, b, c, imm) };
    Modal::<f32>::result(r, imm & SAT)
}

// Operations of halves with an f32, as in `fma.rn.f32.f16 d, a, b, c;`.
binary_ops! {
    #[rare] AddMixed<H: Half>: H, f32 => f32, |a, c, imm| sum(a.into(), c, imm);
    #[rare] SubMixed<H: Half>: H, f32 => f32, |a, c, imm| sum(a.into(), c.negated(), imm);
}

ternary_ops! {
    #[rare] FmaMixed<H: Half>: H, H, f32 => f32, |a, b, c, imm| product_sum(a.into(), b.into(), c, imm);
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
