//! `add`, `min` and `max` of two 16-bit integers in a register, and minima and maxima with `.relu`.

use cuda_ptx::{Opcode as O, ScalarType as T, Word as W};

use crate::exec::form::Form;
use crate::exec::macros::binary;
use crate::exec::map;
use crate::exec::map::Pick;
use crate::exec::number::int::Int;
use crate::exec::number::lane::{Lane, Two};

/// An integer or two packed ones.
pub(crate) trait Halves: Lane {
    fn each(self, b: Self, f: impl Fn(Self::One, Self::One) -> Self::One) -> Self;
    type One: Int;
}

impl<I: Int + Lane<Raw = u32>> Halves for Two<I> {
    type One = I;
    #[inline(always)]
    fn each(self, b: Self, f: impl Fn(I, I) -> I) -> Self {
        Self(f(self.0, b.0), f(self.1, b.1))
    }
}

impl Halves for i32 {
    type One = Self;
    #[inline(always)]
    fn each(self, b: Self, f: impl Fn(Self, Self) -> Self) -> Self {
        f(self, b)
    }
}

binary! {
    Add<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.add(b));
    Min<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.min(b));
    Max<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.max(b));
    MinRelu<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.min(b).max(H::One::default()));
    MaxRelu<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.max(b).max(H::One::default()));
}

/// Returns whether the instruction is one of this file's.
pub(crate) fn is_packed(form: &Form<'_>) -> bool {
    let relu = form.has(W::Relu) && form.has_ty(T::S32);
    matches!(form.opcode(), O::Add | O::Min | O::Max)
        && (form.has_ty(T::U16x2) || form.has_ty(T::S16x2) || relu)
}

/// Selects the handler.
pub(crate) fn pick(form: &mut Form<'_>) -> Option<Pick> {
    let relu = form.take(W::Relu);
    let ty = form.ty_of(&[T::U16x2, T::S16x2, T::S32])?;
    macro_rules! by {
        ($op:ident) => {
            match ty {
                T::U16x2 if !relu => Some(map::binary::<$op<Two<u16>>>()),
                T::S16x2 => Some(map::binary::<$op<Two<i16>>>()),
                T::S32 if relu => Some(map::binary::<$op<i32>>()),
                _ => None,
            }
        };
    }
    match (form.opcode(), relu) {
        (O::Add, false) => by!(Add),
        (O::Min, false) => by!(Min),
        (O::Max, false) => by!(Max),
        (O::Min, true) => by!(MinRelu),
        (O::Max, true) => by!(MaxRelu),
        _ => None,
    }
}
