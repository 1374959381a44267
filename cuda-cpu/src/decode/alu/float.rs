//! Selects the handlers of floating-point arithmetic.

use cuda_ptx::{ScalarType as T, Word as W};
use half::{bf16, f16};

use super::by_type::by_type;
use crate::{
    decode::form::Form,
    exec::{
        alu::{
            directed::{AddRound, FmaRound, MulRound, SubRound},
            extremes::{MAGNITUDES, MAX, PROPAGATE, Three, XorSign},
            float_arithmetic::{Abs, Add, CopySign, Fma, Max, MaxNan, Min, MinNan, Mul, Neg, Sub},
            float_modifiers::{FTZ, Flush, Modal, Plain, RELU, ROUND, SAT},
            fma_halves::{FmaHalves, INSIDE},
            mixed::{Add as AddMixed, Fma as FmaMixed, Sub as SubMixed},
        },
        map::{self, Pick},
        number::lane::{Pair, Two},
    },
};

/// An operation whose result is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounded {
    Add,
    Sub,
    Mul,
    Fma,
}

/// An operation whose result is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exact {
    Neg,
    Abs,
}

/// Returns whether the first type is one of floating-point arithmetic.
pub(super) fn is_float(form: &Form<'_>) -> bool {
    let float =
        |ty| matches!(ty, T::F16 | T::F16x2 | T::BF16 | T::BF16x2 | T::F32 | T::F32x2 | T::F64);
    form.peek_ty().is_some_and(float)
}

/// Takes `.ftz`, `.sat` and `.relu`, and returns their `imm` bits.
fn take_mode(form: &mut Form<'_>) -> u64 {
    let bit = |set: bool, bit| if set { bit } else { 0 };
    bit(form.take(W::Ftz), FTZ) | bit(form.take(W::Sat), SAT) | bit(form.take(W::Relu), RELU)
}

/// Returns the handler for a type and its modifiers. The common modifiers are evaluated at compile time.
macro_rules! by_mode {
    ($ty:expr, $imm:expr, $make:ident, $op:ident) => {
        match ($ty, $imm) {
            (T::F32, 0) => Some(map::$make::<$op<Plain<f32>>>()),
            (T::F32, FTZ) => Some(map::$make::<$op<Flush<f32>>>()),
            (T::F32, imm) => Some(map::$make::<$op<Modal<f32>>>().with(imm)),
            (T::F64, 0) => Some(map::$make::<$op<Plain<f64>>>()),
            (T::F16, imm) => Some(map::$make::<$op<Modal<f16>>>().with(imm)),
            (T::F16x2, imm) => Some(map::$make::<$op<Modal<Two<f16>>>>().with(imm)),
            (T::BF16, imm) => Some(map::$make::<$op<Modal<bf16>>>().with(imm)),
            (T::BF16x2, imm) => Some(map::$make::<$op<Modal<Two<bf16>>>>().with(imm)),
            _ => None,
        }
    };
}

/// Returns the handler of an operation that rounds: to nearest, or in the directed mode in `imm`.
macro_rules! by_round {
    ($ty:expr, $imm:expr, $make:ident, $nearest:ident, $directed:ident) => {
        match ($ty, $imm >> ROUND != 0) {
            (T::F32x2, false) if $imm & (SAT | RELU) == 0 => {
                Some(map::$make::<$nearest<Modal<Pair>>>().with($imm))
            }
            (ty, false) => by_mode!(ty, $imm, $make, $nearest),
            (T::F32, true) if $imm & RELU == 0 => Some(map::$make::<$directed<f32>>().with($imm)),
            (T::F32x2, true) if $imm & (SAT | RELU) == 0 => {
                Some(map::$make::<$directed<Pair>>().with($imm))
            }
            (T::F64, true) if $imm & (FTZ | SAT | RELU) == 0 => {
                Some(map::$make::<$directed<f64>>().with($imm))
            }
            _ => None,
        }
    };
}

/// Selects the handler of `add`, `sub`, `mul` or `fma`.
pub(crate) fn rounded(form: &mut Form<'_>, operation: Rounded) -> Option<Pick> {
    let round = form.take_round().unwrap_or(0);
    let imm = take_mode(form) | round << ROUND;
    let ty = form.ty()?;
    if let Some(half) = form.ty() {
        let fits = ty == T::F32 && imm & (FTZ | RELU) == 0;
        return mixed(operation, half).filter(|_| fits).map(|pick| pick.with(imm));
    }
    match operation {
        Rounded::Add => by_round!(ty, imm, binary, Add, AddRound),
        Rounded::Sub => by_round!(ty, imm, binary, Sub, SubRound),
        Rounded::Mul => by_round!(ty, imm, binary, Mul, MulRound),
        Rounded::Fma => by_round!(ty, imm, ternary, Fma, FmaRound),
    }
}

/// Selects the handler of an operation with halves of this type and an f32.
fn mixed(operation: Rounded, half: T) -> Option<Pick> {
    match operation {
        Rounded::Add => by_type!(half, binary, AddMixed, [F16: f16, BF16: bf16]),
        Rounded::Sub => by_type!(half, binary, SubMixed, [F16: f16, BF16: bf16]),
        Rounded::Mul => None,
        Rounded::Fma => by_type!(half, ternary, FmaMixed, [F16: f16, BF16: bf16]),
    }
}

/// Selects the handler of `fma` of halves in a directed mode, or with out-of-bounds values of a tensor (`.oob`).
pub(super) fn fma_halves(form: &mut Form<'_>) -> Option<Pick> {
    let round = form.take_round()?;
    let relu = if form.take(W::Relu) { RELU } else { 0 };
    let inside = if form.take(W::Oob) { INSIDE } else { 0 };
    let ty = form.ty().filter(|ty| round == 0 || matches!(ty, T::BF16 | T::BF16x2))?;
    let pick = by_type!(ty, ternary, FmaHalves,
        [F16: f16, F16x2: Two<f16>, BF16: bf16, BF16x2: Two<bf16>]);
    pick.map(|pick| pick.with(relu | inside | round << ROUND))
}

/// Selects the handler of `neg` or `abs`.
pub(super) fn exact(form: &mut Form<'_>, operation: Exact) -> Option<Pick> {
    let imm = take_mode(form);
    let ty = form.ty()?;
    match operation {
        Exact::Neg => by_mode!(ty, imm, unary, Neg),
        Exact::Abs => by_mode!(ty, imm, unary, Abs),
    }
}

pub(crate) fn copysign(form: &mut Form<'_>) -> Option<Pick> {
    by_type!(form.ty()?, binary, CopySign, [F32: f32, F64: f64])
}

/// Selects the handler of `min` or `max`.
pub(super) fn extreme(form: &mut Form<'_>, maximum: bool) -> Option<Pick> {
    let imm = take_mode(form);
    let nan = form.take(W::PropagateNan);
    let uncommon = imm | if nan { PROPAGATE } else { 0 } | if maximum { MAX } else { 0 };
    if form.take(W::Xorsign) {
        let fits = form.take(W::Abs) && imm & (RELU | SAT) == 0;
        let ty = form.ty().filter(|ty| imm & FTZ == 0 || !matches!(ty, T::BF16 | T::BF16x2))?;
        let pick = by_type!(ty, binary, XorSign,
            [F32: f32, F16: f16, F16x2: Two<f16>, BF16: bf16, BF16x2: Two<bf16>]);
        return pick.filter(|_| fits).map(|pick| pick.with(uncommon));
    }
    let magnitudes = if form.take(W::Abs) { MAGNITUDES } else { 0 };
    let ty = form.ty()?;
    if magnitudes != 0 || form.instruction().operands.len() == 4 {
        let fits = ty == T::F32 && imm & (RELU | SAT) == 0;
        return fits.then(|| map::ternary::<Three<f32>>().with(uncommon | magnitudes));
    }
    match (maximum, nan) {
        (false, false) => by_mode!(ty, imm, binary, Min),
        (true, false) => by_mode!(ty, imm, binary, Max),
        (false, true) => by_mode!(ty, imm, binary, MinNan),
        (true, true) => by_mode!(ty, imm, binary, MaxNan),
    }
}
