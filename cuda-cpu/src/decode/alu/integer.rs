//! Selects the handlers of integer arithmetic.

use cuda_ptx::{ScalarType as T, Word as W};

use super::by_type::{by_type, of_type};
use super::lanewise::operands;
use crate::{
    decode::{
        build::builder::{Builder, DISAGREES, Problem},
        form::Form,
    },
    exec::{
        alu::{
            carry::{self, CARRY_OUT, HIGH, MULTIPLY},
            int_arithmetic::{
                A_SIGNED, Abs, Add, AddSat, B_SIGNED, Div, Dot, HIGH_HALF, Mad24HiSat, MadHi,
                MadHiSat, MadLo, MadWide, Max, Min, Mul24Hi, Mul24Lo, MulHi, MulLo, MulWide, Neg,
                Rem, Sad, Sub, SubSat,
            },
            packed::{Add as AddTwo, Max as MaxTwo, MaxRelu, Min as MinTwo, MinRelu},
        },
        map::{self, Pick},
        number::lane::{Kind, Two},
    },
    machine::code::Handler,
};

of_type! {
    negate: unary Neg [S16: i16, S32: i32, S64: i64];
    magnitude: unary Abs [S16: i16, S32: i32, S64: i64];
    divide: binary Div int;
    remainder: binary Rem int;
    sad: ternary Sad int;
}

pub(super) fn add(form: &mut Form<'_>) -> Option<Pick> {
    match (form.take(W::Sat), form.ty()?) {
        (true, ty) => by_type!(ty, binary, AddSat, [S32: i32]),
        (false, ty @ (T::U16x2 | T::S16x2)) => {
            by_type!(ty, binary, AddTwo, [U16x2: Two<u16>, S16x2: Two<i16>])
        }
        (false, ty) => by_type!(ty, binary, Add, wrapping),
    }
}

pub(super) fn subtract(form: &mut Form<'_>) -> Option<Pick> {
    match (form.take(W::Sat), form.ty()?) {
        (true, ty) => by_type!(ty, binary, SubSat, [S32: i32]),
        (false, ty) => by_type!(ty, binary, Sub, wrapping),
    }
}

pub(super) fn multiply(form: &mut Form<'_>) -> Option<Pick> {
    let how = form.take_one(&[W::Lo, W::Hi, W::Wide])?;
    let ty = form.ty()?;
    match how {
        W::Lo => by_type!(ty, binary, MulLo, wrapping),
        W::Hi => by_type!(ty, binary, MulHi, int),
        _ => by_type!(ty, binary, MulWide, [U16: u16, S16: i16, U32: u32, S32: i32]),
    }
}

pub(super) fn multiply_add(form: &mut Form<'_>) -> Option<Pick> {
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
pub(super) fn extreme(form: &mut Form<'_>, maximum: bool) -> Option<Pick> {
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
        T::U32 => (carry::run::<u32>, Kind::W32),
        T::S32 => (carry::run::<i32>, Kind::W32),
        T::U64 => (carry::run::<u64>, Kind::W64),
        T::S64 => (carry::run::<i64>, Kind::W64),
        _ => return None,
    };
    let third = (imm & MULTIPLY != 0).then_some(kind);
    Some(Pick { run, d: kind, signed: false, sources: [Some(kind), Some(kind), third], imm })
}
