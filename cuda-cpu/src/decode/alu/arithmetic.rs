//! Decodes arithmetic that exists for integers and floating-point numbers. The first type decides.

use cuda_ptx::{ScalarType as T, Word as W};

use super::float::{self, Exact, Rounded, is_float};
use super::integer::{self, with_carry};
use super::lanewise::lanewise;
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::alu::carry::{MULTIPLY, SUBTRACT};
use crate::exec::map::Pick;

/// A function that selects a handler.
type Select = fn(&mut Form<'_>) -> Option<Pick>;

pub(crate) fn add(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    if form.has(W::Cc) {
        with_carry(b, form, 0)
    } else {
        either(b, form, Rounded::Add, integer::add)
    }
}

pub(crate) fn subtract(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    match form.has(W::Cc) {
        true => with_carry(b, form, SUBTRACT),
        false => either(b, form, Rounded::Sub, integer::subtract),
    }
}

pub(crate) fn multiply(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    either(b, form, Rounded::Mul, integer::multiply)
}

pub(crate) fn multiply_add(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    match form.has(W::Cc) {
        true => with_carry(b, form, MULTIPLY),
        // Of the floating-point types, only f32 and f64 have `mad`.
        false if is_float(form) && !matches!(form.only_ty(), Some(T::F32 | T::F64)) => {
            Err(DISAGREES)
        }
        false => either(b, form, Rounded::Fma, integer::multiply_add),
    }
}

fn either(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    of_floats: Rounded,
    of_integers: Select,
) -> Result<(), Problem> {
    let pick = if is_float(form) { float::rounded(form, of_floats) } else { of_integers(form) };
    lanewise(pick, b, form)
}

/// Selects the handler of `fma`.
pub(crate) fn fma(form: &mut Form<'_>) -> Option<Pick> {
    let half = matches!(form.peek_ty(), Some(T::F16 | T::F16x2 | T::BF16 | T::BF16x2));
    match half && (form.has(W::Oob) || !form.has(W::Rn)) {
        true => float::fma_halves(form),
        false => float::rounded(form, Rounded::Fma),
    }
}

/// Selects the handler of `neg`.
pub(crate) fn negate(form: &mut Form<'_>) -> Option<Pick> {
    if is_float(form) { float::exact(form, Exact::Neg) } else { integer::negate(form) }
}

/// Selects the handler of `abs`.
pub(crate) fn magnitude(form: &mut Form<'_>) -> Option<Pick> {
    if is_float(form) { float::exact(form, Exact::Abs) } else { integer::magnitude(form) }
}

/// Selects the handler of `min` or `max`.
pub(crate) fn extreme(form: &mut Form<'_>, maximum: bool) -> Option<Pick> {
    if is_float(form) { float::extreme(form, maximum) } else { integer::extreme(form, maximum) }
}
