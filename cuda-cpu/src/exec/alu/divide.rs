//! Division, reciprocals and square roots with IEEE 754 rounding.

use super::float_arithmetic::ROUND;
use crate::exec::map::{Binary, Unary, binary_ops, unary_ops};
use crate::exec::number::float::{Float, NAN32};
use crate::exec::number::rounding;
use crate::exec::number::rounding::Round;
use crate::lanes::simd::Level;

/// The native types, with division and roots.
pub(crate) trait Divide: Float {
    const ONE: Self;
    fn div(self, b: Self) -> Self;
    fn sqrt(self) -> Self;
    fn round_div(self, b: Self, mode: Round) -> Self;
    fn round_sqrt(self, mode: Round) -> Self;
}

impl Divide for f32 {
    const ONE: Self = 1.0;
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        self / b
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        // Tests the bits, because LLVM may remove an ordinary NaN check: it treats all NaNs as equal.
        let bits = self.sqrt().to_bits();
        Self::from_bits(if bits << 1 > 0xFF00_0000 { NAN32 } else { bits })
    }
    fn round_div(self, b: Self, mode: Round) -> Self {
        rounding::div_f32(self, b, mode)
    }
    fn round_sqrt(self, mode: Round) -> Self {
        rounding::sqrt_f32(self, mode)
    }
}

impl Divide for f64 {
    const ONE: Self = 1.0;
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        self / b
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.sqrt()
    }
    fn round_div(self, b: Self, mode: Round) -> Self {
        rounding::div_f64(self, b, mode)
    }
    fn round_sqrt(self, mode: Round) -> Self {
        rounding::sqrt_f64(self, mode)
    }
}

unary_ops! {
    Rcp<D: Divide>: D => D, |a| D::ONE.div(a).canonical();
    Sqrt<D: Divide>: D => D, |a| a.sqrt().canonical();
    #[slow] RcpRound<D: Divide>: D => D, |a, imm| D::ONE.round_div(a, mode(imm)).canonical();
    #[slow] SqrtRound<D: Divide>: D => D, |a, imm| a.round_sqrt(mode(imm)).canonical();
}

binary_ops! {
    Div<D: Divide>: D, D => D, |a, b| a.div(b).canonical();
    #[slow] DivRound<D: Divide>: D, D => D, |a, b, imm| a.round_div(b, mode(imm)).canonical();
}

fn mode(imm: u64) -> Round {
    Round::from_code(imm >> ROUND)
}

/// `div.ftz.f32`, to nearest or in the mode in `imm`.
pub(crate) struct DivFlush<const NEAREST: bool>;
/// `rcp.ftz.f32`.
pub(crate) struct RcpFlush<const NEAREST: bool>;
/// `sqrt.ftz.f32`.
pub(crate) struct SqrtFlush<const NEAREST: bool>;

impl<const NEAREST: bool> Binary for DivFlush<NEAREST> {
    type A = f32;
    type B = f32;
    type D = f32;
    const TOP: Level = if NEAREST { Level::Avx512 } else { Level::Base };
    #[inline(always)]
    fn apply(a: f32, b: f32, imm: u64) -> f32 {
        let (a, b) = (a.flush(), b.flush());
        let q = if NEAREST { a / b } else { rounding::div_f32(a, b, mode(imm)) };
        // A quotient below the normal numbers is flushed to zero, even if it would be rounded up to a normal one. The
        // product is exact.
        let tiny = f64::from(a).abs() < f64::from(b).abs() * f64::from(f32::MIN_POSITIVE);
        (if tiny { q * 0.0 } else { q }).canonical()
    }
}

impl<const NEAREST: bool> Unary for RcpFlush<NEAREST> {
    type A = f32;
    type D = f32;
    const TOP: Level = if NEAREST { Level::Avx512 } else { Level::Base };
    #[inline(always)]
    fn apply(a: f32, imm: u64) -> f32 {
        DivFlush::<NEAREST>::apply(1.0, a, imm)
    }
}

impl<const NEAREST: bool> Unary for SqrtFlush<NEAREST> {
    type A = f32;
    type D = f32;
    const TOP: Level = if NEAREST { Level::Avx512 } else { Level::Base };
    #[inline(always)]
    fn apply(a: f32, imm: u64) -> f32 {
        let a = a.flush();
        (if NEAREST { Divide::sqrt(a) } else { rounding::sqrt_f32(a, mode(imm)) }).canonical()
    }
}
