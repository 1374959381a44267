//! Floating-point arithmetic: `add`, `sub`, `mul`, `fma`, `min`, `max`, `neg`, `abs` and `copysign` of all types.

use cuda_ptx::ScalarType as T;
use half::{bf16, f16};

use super::directed::{AddRound, FmaRound, MulRound, SubRound};
use super::float::Float;
use super::lane::{Pair, Two};
use super::macros::{binary, ternary, unary};
use super::map::Pick;
use super::mixed;
use super::rounding::Round;
use crate::engine::decode::form::Form;

/// `imm` bits of an operation whose modifiers are evaluated at run time. The code of the rounding mode is above them.
pub(super) const FTZ: u64 = 1;
pub(super) const SAT: u64 = 2;
pub(super) const RELU: u64 = 4;
pub(super) const ROUND: u32 = 4;

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
pub(crate) struct Plain<F>(std::marker::PhantomData<F>);
/// `.ftz` alone.
pub(crate) struct Flush<F>(std::marker::PhantomData<F>);
/// The modifiers in `imm`.
pub(crate) struct Modal<F>(std::marker::PhantomData<F>);

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

unary! {
    Neg<M: Mode>: M::F => M::F, |a, imm| M::operand(a, imm).negated().canonical();
    Abs<M: Mode>: M::F => M::F, |a, imm| M::operand(a, imm).abs().canonical();
}

binary! {
    Add<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).add(M::operand(b, imm)), imm);
    Sub<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).sub(M::operand(b, imm)), imm);
    Mul<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::mul(a, b, imm);
    Min<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).min(M::operand(b, imm)), imm);
    Max<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).max(M::operand(b, imm)), imm);
    MinNan<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).min_nan(M::operand(b, imm)), imm);
    MaxNan<M: Mode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).max_nan(M::operand(b, imm)), imm);
    CopySign<F: Float>: F, F => F, |sign, a| a.with_sign_of(sign);
}

ternary! {
    Fma<M: Mode>: M::F, M::F, M::F => M::F, |a, b, c, imm| M::fma(a, b, c, imm);
}

/// Returns the handler for a type and its modifiers. The common modifiers are evaluated at compile time.
macro_rules! by_mode {
    ($ty:expr, $imm:expr, $make:ident, $op:ident) => {
        match ($ty, $imm) {
            (T::F32, 0) => Some(super::map::$make::<$op<Plain<f32>>>()),
            (T::F32, FTZ) => Some(super::map::$make::<$op<Flush<f32>>>()),
            (T::F32, imm) => Some(super::map::$make::<$op<Modal<f32>>>().with(imm)),
            (T::F32x2, 0 | FTZ) => Some(super::map::$make::<$op<Modal<Pair>>>().with($imm)),
            (T::F64, 0) => Some(super::map::$make::<$op<Plain<f64>>>()),
            (T::F16, imm) => Some(super::map::$make::<$op<Modal<f16>>>().with(imm)),
            (T::F16x2, imm) => Some(super::map::$make::<$op<Modal<Two<f16>>>>().with(imm)),
            (T::BF16, imm) => Some(super::map::$make::<$op<Modal<bf16>>>().with(imm)),
            (T::BF16x2, imm) => Some(super::map::$make::<$op<Modal<Two<bf16>>>>().with(imm)),
            _ => None,
        }
    };
}

macro_rules! by_round {
    ($ty:expr, $imm:expr, $make:ident, $op:ident) => {
        match $ty {
            T::F32 if $imm & RELU == 0 => Some(super::map::$make::<$op<f32>>().with($imm)),
            T::F32x2 if $imm & (SAT | RELU) == 0 => {
                Some(super::map::$make::<$op<Pair>>().with($imm))
            }
            T::F64 if $imm & (FTZ | SAT | RELU) == 0 => {
                Some(super::map::$make::<$op<f64>>().with($imm))
            }
            _ => None,
        }
    };
}

/// Takes `.ftz`, `.sat` and `.relu`, and returns their `imm` bits.
pub(super) fn take_mode(form: &mut Form<'_>) -> u64 {
    let bit = |set: bool, bit| if set { bit } else { 0 };
    bit(form.take("ftz"), FTZ) | bit(form.take("sat"), SAT) | bit(form.take("relu"), RELU)
}

/// Selects the handler of a floating-point instruction.
pub(crate) fn pick(form: &mut Form<'_>) -> Option<Pick> {
    let round = form.take_one(&["rn", "rz", "rm", "rp"]).map_or(0, Round::code);
    let imm = take_mode(form);
    let nan = form.take("NaN");
    let ty = form.ty()?;
    if let Some(half) = form.ty() {
        let fits = ty == T::F32 && !nan;
        return mixed::pick(form.opcode(), half, imm, round).filter(|_| fits);
    }
    if ty == T::F32x2 && (!matches!(form.opcode(), "add" | "sub" | "mul" | "fma") || nan) {
        return None;
    }
    if round != 0 {
        let imm = imm | round << ROUND;
        return match form.opcode() {
            "add" => by_round!(ty, imm, binary, AddRound),
            "sub" => by_round!(ty, imm, binary, SubRound),
            "mul" => by_round!(ty, imm, binary, MulRound),
            "fma" | "mad" => by_round!(ty, imm, ternary, FmaRound),
            _ => None,
        };
    }
    match (form.opcode(), nan) {
        ("add", false) => by_mode!(ty, imm, binary, Add),
        ("sub", false) => by_mode!(ty, imm, binary, Sub),
        ("mul", false) => by_mode!(ty, imm, binary, Mul),
        ("fma" | "mad", false) => by_mode!(ty, imm, ternary, Fma),
        ("min", false) => by_mode!(ty, imm, binary, Min),
        ("max", false) => by_mode!(ty, imm, binary, Max),
        ("min", true) => by_mode!(ty, imm, binary, MinNan),
        ("max", true) => by_mode!(ty, imm, binary, MaxNan),
        ("neg", false) => by_mode!(ty, imm, unary, Neg),
        ("abs", false) => by_mode!(ty, imm, unary, Abs),
        ("copysign", false) if imm == 0 => match ty {
            T::F32 => Some(super::map::binary::<CopySign<f32>>()),
            T::F64 => Some(super::map::binary::<CopySign<f64>>()),
            _ => None,
        },
        _ => None,
    }
}
