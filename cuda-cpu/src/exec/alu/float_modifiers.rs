//! The modifiers `.ftz`, `.sat` and `.relu` of floating-point instructions.

use std::marker::PhantomData;

use crate::exec::number::float::Float;

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
