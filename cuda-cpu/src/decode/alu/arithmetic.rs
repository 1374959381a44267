//! Selects the handlers of integer and floating-point arithmetic. The first type of an instruction decides between the
//! two.

use cuda_ptx::{ScalarType as T, Word as W};
use half::{bf16, f16};

use super::lanewise::{by_type, lanewise, of_type, operands};
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::alu::float_arithmetic as float;
use crate::exec::alu::float_arithmetic::{
    AddMixed, CopySign, FTZ, Flush, FmaHalves, FmaMixed, INSIDE, MAGNITUDES, MAX, Modal, PROPAGATE,
    Plain, RELU, ROUND, SAT, SubMixed, Three, XorSign,
};
use crate::exec::alu::int_arithmetic::{
    self, A_SIGNED, Abs, Add, AddSat, AddTwo, B_SIGNED, CARRY_OUT, Div, Dot, HIGH, HIGH_HALF,
    MULTIPLY, Mad24HiSat, MadHi, MadHiSat, MadLo, MadWide, Max, MaxRelu, MaxTwo, Min, MinRelu,
    MinTwo, Mul24Hi, Mul24Lo, MulHi, MulLo, MulWide, Neg, Rem, SUBTRACT, Sad, Sub, SubSat,
};
use crate::exec::map::{self, Pick};
use crate::exec::number::lane::{Kind, Pair, Two};
use crate::machine::code::Handler;

/// A function that selects a handler.
type Select = fn(&mut Form<'_>) -> Option<Pick>;

pub(crate) fn add(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    if form.has(W::Cc) {
        with_carry(b, form, 0)
    } else {
        either(b, form, Rounded::Add, add_integers)
    }
}

pub(crate) fn subtract(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    match form.has(W::Cc) {
        true => with_carry(b, form, SUBTRACT),
        false => either(b, form, Rounded::Sub, subtract_integers),
    }
}

pub(crate) fn multiply(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    either(b, form, Rounded::Mul, multiply_integers)
}

pub(crate) fn multiply_add(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    match form.has(W::Cc) {
        true => with_carry(b, form, MULTIPLY),
        // Of the floating-point types, only f32 and f64 have `mad`.
        false if is_float(form) && !matches!(form.only_ty(), Some(T::F32 | T::F64)) => {
            Err(DISAGREES)
        }
        false => either(b, form, Rounded::Fma, multiply_add_integers),
    }
}

fn either(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    of_floats: Rounded,
    of_integers: Select,
) -> Result<(), Problem> {
    let pick = if is_float(form) { rounded(form, of_floats) } else { of_integers(form) };
    lanewise(pick, b, form)
}

/// Selects the handler of `fma`.
pub(crate) fn fma(form: &mut Form<'_>) -> Option<Pick> {
    let half = matches!(form.peek_ty(), Some(T::F16 | T::F16x2 | T::BF16 | T::BF16x2));
    match half && (form.has(W::Oob) || !form.has(W::Rn)) {
        true => fma_halves(form),
        false => rounded(form, Rounded::Fma),
    }
}

/// Selects the handler of `neg`.
pub(crate) fn negate(form: &mut Form<'_>) -> Option<Pick> {
    if is_float(form) { exact(form, Exact::Neg) } else { negate_integer(form) }
}

/// Selects the handler of `abs`.
pub(crate) fn magnitude(form: &mut Form<'_>) -> Option<Pick> {
    if is_float(form) { exact(form, Exact::Abs) } else { magnitude_of_integer(form) }
}

/// Selects the handler of `min` or `max`.
pub(crate) fn extreme(form: &mut Form<'_>, maximum: bool) -> Option<Pick> {
    if is_float(form) {
        extreme_of_floats(form, maximum)
    } else {
        extreme_of_integers(form, maximum)
    }
}

/// An operation whose result is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounded {
    Add,
    Sub,
    Mul,
    Fma,
}

/// An operation whose result is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exact {
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
            (T::F32, 0) => Some(map::$make::<float::$op<Plain<f32>>>()),
            (T::F32, FTZ) => Some(map::$make::<float::$op<Flush<f32>>>()),
            (T::F32, imm) => Some(map::$make::<float::$op<Modal<f32>>>().with(imm)),
            (T::F64, 0) => Some(map::$make::<float::$op<Plain<f64>>>()),
            (T::F16, imm) => Some(map::$make::<float::$op<Modal<f16>>>().with(imm)),
            (T::F16x2, imm) => Some(map::$make::<float::$op<Modal<Two<f16>>>>().with(imm)),
            (T::BF16, imm) => Some(map::$make::<float::$op<Modal<bf16>>>().with(imm)),
            (T::BF16x2, imm) => Some(map::$make::<float::$op<Modal<Two<bf16>>>>().with(imm)),
            _ => None,
        }
    };
}

/// Returns the handler of an operation that rounds: to nearest, or in the directed mode in `imm`.
macro_rules! by_round {
    ($ty:expr, $imm:expr, $make:ident, $nearest:ident, $directed:ident) => {
        match ($ty, $imm >> ROUND != 0) {
            (T::F32x2, false) if $imm & (SAT | RELU) == 0 => {
                Some(map::$make::<float::$nearest<Modal<Pair>>>().with($imm))
            }
            (ty, false) => by_mode!(ty, $imm, $make, $nearest),
            (T::F32, true) if $imm & RELU == 0 => {
                Some(map::$make::<float::$directed<f32>>().with($imm))
            }
            (T::F32x2, true) if $imm & (SAT | RELU) == 0 => {
                Some(map::$make::<float::$directed<Pair>>().with($imm))
            }
            (T::F64, true) if $imm & (FTZ | SAT | RELU) == 0 => {
                Some(map::$make::<float::$directed<f64>>().with($imm))
            }
            _ => None,
        }
    };
}

/// Selects the handler of `add`, `sub`, `mul` or `fma`.
fn rounded(form: &mut Form<'_>, operation: Rounded) -> Option<Pick> {
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
fn fma_halves(form: &mut Form<'_>) -> Option<Pick> {
    let round = form.take_round()?;
    let relu = if form.take(W::Relu) { RELU } else { 0 };
    let inside = if form.take(W::Oob) { INSIDE } else { 0 };
    let ty = form.ty().filter(|ty| round == 0 || matches!(ty, T::BF16 | T::BF16x2))?;
    let pick = by_type!(ty, ternary, FmaHalves,
        [F16: f16, F16x2: Two<f16>, BF16: bf16, BF16x2: Two<bf16>]);
    pick.map(|pick| pick.with(relu | inside | round << ROUND))
}

/// Selects the handler of `neg` or `abs`.
fn exact(form: &mut Form<'_>, operation: Exact) -> Option<Pick> {
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
fn extreme_of_floats(form: &mut Form<'_>, maximum: bool) -> Option<Pick> {
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

of_type! {
    negate_integer: unary Neg [S16: i16, S32: i32, S64: i64];
    magnitude_of_integer: unary Abs [S16: i16, S32: i32, S64: i64];
    divide: binary Div int;
    remainder: binary Rem int;
    sad: ternary Sad int;
}

fn add_integers(form: &mut Form<'_>) -> Option<Pick> {
    match (form.take(W::Sat), form.ty()?) {
        (true, ty) => by_type!(ty, binary, AddSat, [S32: i32]),
        (false, ty @ (T::U16x2 | T::S16x2)) => {
            by_type!(ty, binary, AddTwo, [U16x2: Two<u16>, S16x2: Two<i16>])
        }
        (false, ty) => by_type!(ty, binary, Add, wrapping),
    }
}

fn subtract_integers(form: &mut Form<'_>) -> Option<Pick> {
    match (form.take(W::Sat), form.ty()?) {
        (true, ty) => by_type!(ty, binary, SubSat, [S32: i32]),
        (false, ty) => by_type!(ty, binary, Sub, wrapping),
    }
}

fn multiply_integers(form: &mut Form<'_>) -> Option<Pick> {
    let how = form.take_one(&[W::Lo, W::Hi, W::Wide])?;
    let ty = form.ty()?;
    match how {
        W::Lo => by_type!(ty, binary, MulLo, wrapping),
        W::Hi => by_type!(ty, binary, MulHi, int),
        _ => by_type!(ty, binary, MulWide, [U16: u16, S16: i16, U32: u32, S32: i32]),
    }
}

fn multiply_add_integers(form: &mut Form<'_>) -> Option<Pick> {
    let how = form.take_one(&[W::Lo, W::Hi, W::Wide])?;
    let ty = form.ty()?;
    match how {
        W::Hi if form.take(W::Sat) => by_type!(ty, ternary, MadHiSat, [S32: i32]),
        W::Lo => by_type!(ty, ternary, MadLo, wrapping),
        W::Hi => by_type!(ty, ternary, MadHi, int),
        _ => by_type!(ty, ternary, MadWide, [U16: u16, S16: i16, U32: u32, S32: i32]),
    }
}

/// Selects the handler of `mul24`, which is `mad24` with a zero appended.
pub(crate) fn multiply_24(form: &mut Form<'_>) -> Option<Pick> {
    form.append_zero();
    product_24(form)
}

/// Selects the handler of `mad24`.
pub(crate) fn multiply_add_24(form: &mut Form<'_>) -> Option<Pick> {
    if form.has(W::Hi) && form.take(W::Sat) {
        form.take(W::Hi);
        return by_type!(form.ty()?, ternary, Mad24HiSat, [S32: i32]);
    }
    product_24(form)
}

fn product_24(form: &mut Form<'_>) -> Option<Pick> {
    let how = form.take_one(&[W::Lo, W::Hi])?;
    let ty = form.ty()?;
    match how {
        W::Lo => by_type!(ty, ternary, Mul24Lo, [U32: u32, S32: i32]),
        _ => by_type!(ty, ternary, Mul24Hi, [U32: u32, S32: i32]),
    }
}

/// Selects the handler of `min` or `max`.
fn extreme_of_integers(form: &mut Form<'_>, maximum: bool) -> Option<Pick> {
    let relu = form.take(W::Relu);
    let ty = form.ty()?;
    match (maximum, relu, ty) {
        (false, true, _) => by_type!(ty, binary, MinRelu, [S16x2: Two<i16>, S32: i32]),
        (true, true, _) => by_type!(ty, binary, MaxRelu, [S16x2: Two<i16>, S32: i32]),
        (false, false, T::U16x2 | T::S16x2) => {
            by_type!(ty, binary, MinTwo, [U16x2: Two<u16>, S16x2: Two<i16>])
        }
        (true, false, T::U16x2 | T::S16x2) => {
            by_type!(ty, binary, MaxTwo, [U16x2: Two<u16>, S16x2: Two<i16>])
        }
        (false, false, _) => by_type!(ty, binary, Min, int),
        (true, false, _) => by_type!(ty, binary, Max, int),
    }
}

/// Selects the handler of `dp4a`.
pub(crate) fn dot_of_bytes(form: &mut Form<'_>) -> Option<Pick> {
    let signs = signs(form)?;
    Some(map::ternary::<Dot<4>>().with(signs))
}

/// Selects the handler of `dp2a`.
pub(crate) fn dot_of_halves(form: &mut Form<'_>) -> Option<Pick> {
    let half = if form.take_one(&[W::Lo, W::Hi])? == W::Hi { HIGH_HALF } else { 0 };
    let signs = signs(form)?;
    Some(map::ternary::<Dot<2>>().with(half | signs))
}

fn signs(form: &mut Form<'_>) -> Option<u64> {
    [A_SIGNED, B_SIGNED].into_iter().try_fold(0, |imm, sign| match form.ty()? {
        T::S32 => Some(imm | sign),
        T::U32 => Some(imm),
        _ => None,
    })
}

/// Decodes `add.cc`, `addc` and the other instructions with a carry. `imm` is the operation.
pub(crate) fn with_carry(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    imm: u64,
) -> Result<(), Problem> {
    let pick = carry_of(form, imm).ok_or(DISAGREES)?;
    let mut op = operands(b, form, &pick)?;
    let carry = b.carry();
    op.extra = b.extras([carry]);
    b.emit(op)
}

fn carry_of(form: &mut Form<'_>, mut imm: u64) -> Option<Pick> {
    imm |= if form.take(W::Cc) { CARRY_OUT } else { 0 };
    if imm & MULTIPLY != 0 && form.take_one(&[W::Lo, W::Hi])? == W::Hi {
        imm |= HIGH;
    }
    let (run, kind): (Handler, Kind) = match form.ty()? {
        T::U32 => (int_arithmetic::with_carry::<u32>, Kind::W32),
        T::S32 => (int_arithmetic::with_carry::<i32>, Kind::W32),
        T::U64 => (int_arithmetic::with_carry::<u64>, Kind::W64),
        T::S64 => (int_arithmetic::with_carry::<i64>, Kind::W64),
        _ => return None,
    };
    let third = (imm & MULTIPLY != 0).then_some(kind);
    Some(Pick { run, d: kind, signed: false, sources: [Some(kind), Some(kind), third], imm })
}
