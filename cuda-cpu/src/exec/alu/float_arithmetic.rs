//! Floating-point arithmetic: `add`, `sub`, `mul`, `fma`, `min`, `max`, `neg`, `abs` and `copysign` of all types.

use cuda_ptx::{Opcode as O, ScalarType as T, Word as W};
use half::{bf16, f16};

use super::{
    directed::{AddRound, FmaRound, MulRound, SubRound},
    float_modifiers::{FTZ, Flush, Modal, Mode, Plain, RELU, ROUND, SAT, take_mode},
    mixed,
};
use crate::exec::{
    form::Form,
    macros::{binary, ternary, unary},
    map::Pick,
    number::{
        float::Float,
        lane::{Pair, Two},
        rounding::Round,
    },
};

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
            (T::F32, 0) => Some(crate::exec::map::$make::<$op<Plain<f32>>>()),
            (T::F32, FTZ) => Some(crate::exec::map::$make::<$op<Flush<f32>>>()),
            (T::F32, imm) => Some(crate::exec::map::$make::<$op<Modal<f32>>>().with(imm)),
            (T::F32x2, 0 | FTZ) => Some(crate::exec::map::$make::<$op<Modal<Pair>>>().with($imm)),
            (T::F64, 0) => Some(crate::exec::map::$make::<$op<Plain<f64>>>()),
            (T::F16, imm) => Some(crate::exec::map::$make::<$op<Modal<f16>>>().with(imm)),
            (T::F16x2, imm) => Some(crate::exec::map::$make::<$op<Modal<Two<f16>>>>().with(imm)),
            (T::BF16, imm) => Some(crate::exec::map::$make::<$op<Modal<bf16>>>().with(imm)),
            (T::BF16x2, imm) => Some(crate::exec::map::$make::<$op<Modal<Two<bf16>>>>().with(imm)),
            _ => None,
        }
    };
}

macro_rules! by_round {
    ($ty:expr, $imm:expr, $make:ident, $op:ident) => {
        match $ty {
            T::F32 if $imm & RELU == 0 => Some(crate::exec::map::$make::<$op<f32>>().with($imm)),
            T::F32x2 if $imm & (SAT | RELU) == 0 => {
                Some(crate::exec::map::$make::<$op<Pair>>().with($imm))
            }
            T::F64 if $imm & (FTZ | SAT | RELU) == 0 => {
                Some(crate::exec::map::$make::<$op<f64>>().with($imm))
            }
            _ => None,
        }
    };
}

/// Selects the handler of a floating-point instruction.
pub(crate) fn pick(form: &mut Form<'_>) -> Option<Pick> {
    let round = form.take_one(&[W::Rn, W::Rz, W::Rm, W::Rp]).map_or(0, Round::code);
    let imm = take_mode(form);
    let nan = form.take(W::PropagateNan);
    let ty = form.ty()?;
    if let Some(half) = form.ty() {
        let fits = ty == T::F32 && !nan;
        return mixed::pick(form.opcode(), half, imm, round).filter(|_| fits);
    }
    if ty == T::F32x2 && (!matches!(form.opcode(), O::Add | O::Sub | O::Mul | O::Fma) || nan) {
        return None;
    }
    if round != 0 {
        let imm = imm | round << ROUND;
        return match form.opcode() {
            O::Add => by_round!(ty, imm, binary, AddRound),
            O::Sub => by_round!(ty, imm, binary, SubRound),
            O::Mul => by_round!(ty, imm, binary, MulRound),
            O::Fma | O::Mad => by_round!(ty, imm, ternary, FmaRound),
            _ => None,
        };
    }
    match (form.opcode(), nan) {
        (O::Add, false) => by_mode!(ty, imm, binary, Add),
        (O::Sub, false) => by_mode!(ty, imm, binary, Sub),
        (O::Mul, false) => by_mode!(ty, imm, binary, Mul),
        (O::Fma | O::Mad, false) => by_mode!(ty, imm, ternary, Fma),
        (O::Min, false) => by_mode!(ty, imm, binary, Min),
        (O::Max, false) => by_mode!(ty, imm, binary, Max),
        (O::Min, true) => by_mode!(ty, imm, binary, MinNan),
        (O::Max, true) => by_mode!(ty, imm, binary, MaxNan),
        (O::Neg, false) => by_mode!(ty, imm, unary, Neg),
        (O::Abs, false) => by_mode!(ty, imm, unary, Abs),
        (O::Copysign, false) if imm == 0 => match ty {
            T::F32 => Some(crate::exec::map::binary::<CopySign<f32>>()),
            T::F64 => Some(crate::exec::map::binary::<CopySign<f64>>()),
            _ => None,
        },
        _ => None,
    }
}
