//! Selects the handlers of divisions, roots and approximate functions.

use cuda_ptx::{ScalarType as T, Word as W};
use half::{bf16, f16};

use super::arithmetic;
use super::arithmetic::is_float;
use crate::decode::form::Form;
use crate::exec::alu::approx::{
    Cos, Ex2, Function, Lg2, OfHalves, Quotient, Rcp, Rsqrt, RsqrtDouble, Sin, Single, Sqrt, Tanh,
    Upper,
};
use crate::exec::alu::divide::{
    Div, DivFlush, DivRound, Rcp as RcpExact, RcpFlush, RcpRound, Sqrt as SqrtExact, SqrtFlush,
    SqrtRound,
};
use crate::exec::alu::float_arithmetic::ROUND;
use crate::exec::map;
use crate::exec::map::Pick;
use crate::exec::number::lane::Two;

/// The precision of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precision {
    /// Rounded in the mode of this code.
    Rounded(u64),
    Approximate,
    Full,
}

fn take(form: &mut Form<'_>) -> Option<(Precision, bool, T)> {
    let precision = match (form.take_one(&[W::Approx, W::Full]), form.take_round()) {
        (None, Some(round)) => Precision::Rounded(round),
        (Some(W::Approx), None) => Precision::Approximate,
        (Some(_), None) => Precision::Full,
        _ => return None,
    };
    Some((precision, form.take(W::Ftz), form.ty()?))
}

macro_rules! exact {
    ($make:ident, $ty:expr, $ftz:expr, $round:expr, $plain:ident, $directed:ident, $flush:ident) => {{
        let pick = match ($ty, $ftz, $round) {
            (T::F32, false, 0) => map::$make::<$plain<f32>>(),
            (T::F64, false, 0) => map::$make::<$plain<f64>>(),
            (T::F32, false, _) => map::$make::<$directed<f32>>(),
            (T::F64, false, _) => map::$make::<$directed<f64>>(),
            (T::F32, true, 0) => map::$make::<$flush<true>>(),
            (T::F32, true, _) => map::$make::<$flush<false>>(),
            _ => return None,
        };
        Some(pick.with($round << ROUND))
    }};
}

pub(crate) fn divide(form: &mut Form<'_>) -> Option<Pick> {
    if !is_float(form) {
        return arithmetic::divide(form);
    }
    match take(form)? {
        (Precision::Rounded(round), ftz, ty) => {
            exact!(binary, ty, ftz, round, Div, DivRound, DivFlush)
        }
        (Precision::Approximate, ftz, T::F32) => Some(quotient::<false>(ftz)),
        (Precision::Full, ftz, T::F32) => Some(quotient::<true>(ftz)),
        _ => None,
    }
}

pub(crate) fn reciprocal(form: &mut Form<'_>) -> Option<Pick> {
    match take(form)? {
        (Precision::Rounded(round), ftz, ty) => {
            exact!(unary, ty, ftz, round, RcpExact, RcpRound, RcpFlush)
        }
        (Precision::Approximate, ftz, T::F32) => Some(single::<Rcp>(ftz)),
        (Precision::Approximate, true, T::F64) => Some(map::unary::<Upper<false>>()),
        _ => None,
    }
}

pub(crate) fn root(form: &mut Form<'_>) -> Option<Pick> {
    match take(form)? {
        (Precision::Rounded(round), ftz, ty) => {
            exact!(unary, ty, ftz, round, SqrtExact, SqrtRound, SqrtFlush)
        }
        (Precision::Approximate, ftz, T::F32) => Some(single::<Sqrt>(ftz)),
        _ => None,
    }
}

pub(crate) fn reciprocal_root(form: &mut Form<'_>) -> Option<Pick> {
    match take(form)? {
        (Precision::Approximate, ftz, T::F32) => Some(single::<Rsqrt>(ftz)),
        (Precision::Approximate, true, T::F64) => Some(map::unary::<Upper<true>>()),
        (Precision::Approximate, false, T::F64) => Some(map::unary::<RsqrtDouble>()),
        _ => None,
    }
}

pub(crate) fn logarithm(form: &mut Form<'_>) -> Option<Pick> {
    of_f32::<Lg2>(form)
}

pub(crate) fn sine(form: &mut Form<'_>) -> Option<Pick> {
    of_f32::<Sin>(form)
}

pub(crate) fn cosine(form: &mut Form<'_>) -> Option<Pick> {
    of_f32::<Cos>(form)
}

pub(crate) fn exponential(form: &mut Form<'_>) -> Option<Pick> {
    match take(form)? {
        (Precision::Approximate, ftz, T::F32) => Some(single::<Ex2>(ftz)),
        (Precision::Approximate, false, T::F16) => Some(map::unary::<OfHalves<Ex2, f16>>()),
        (Precision::Approximate, false, T::F16x2) => Some(map::unary::<OfHalves<Ex2, Two<f16>>>()),
        (Precision::Approximate, true, T::BF16) => Some(map::unary::<OfHalves<Ex2, bf16>>()),
        (Precision::Approximate, true, T::BF16x2) => Some(map::unary::<OfHalves<Ex2, Two<bf16>>>()),
        _ => None,
    }
}

pub(crate) fn tanh(form: &mut Form<'_>) -> Option<Pick> {
    let (Precision::Approximate, false, ty) = take(form)? else { return None };
    match ty {
        T::F32 => Some(single::<Tanh>(false)),
        T::F16 => Some(map::unary::<OfHalves<Tanh, f16>>()),
        T::F16x2 => Some(map::unary::<OfHalves<Tanh, Two<f16>>>()),
        T::BF16 => Some(map::unary::<OfHalves<Tanh, bf16>>()),
        T::BF16x2 => Some(map::unary::<OfHalves<Tanh, Two<bf16>>>()),
        _ => None,
    }
}

fn of_f32<F: Function>(form: &mut Form<'_>) -> Option<Pick> {
    let (Precision::Approximate, ftz, T::F32) = take(form)? else { return None };
    Some(single::<F>(ftz))
}

fn single<F: Function>(ftz: bool) -> Pick {
    if ftz { map::unary::<Single<F, true>>() } else { map::unary::<Single<F, false>>() }
}

fn quotient<const FULL: bool>(ftz: bool) -> Pick {
    if ftz { map::binary::<Quotient<FULL, true>>() } else { map::binary::<Quotient<FULL, false>>() }
}
