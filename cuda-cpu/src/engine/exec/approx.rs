//! Division, square roots and the functions a GPU approximates: rcp, ex2, lg2, sin, cos, tanh.
//!
//! The approximate forms are computed more precisely than a GPU does; that is within the error
//! its manual documents.

use cuda_ptx::ScalarType as T;
use half::{bf16, f16};

use super::arith_float::{FTZ, Flush, Modal, Mode, Plain, ROUND, take_mode};
use super::directed::mode;
use super::float::Float;
use super::lane::Two;
use super::macros::{binary, unary};
use super::map::{self, Pick, Unary};
use super::rounding::{self, Round};
use crate::engine::decode::form::Form;

/// The native types, with division and roots.
pub(crate) trait Divide: Float {
    const ONE: Self;
    fn div(self, b: Self) -> Self;
    fn sqrt(self) -> Self;
    fn round_div(self, b: Self, mode: Round) -> Self;
    fn round_sqrt(self, mode: Round) -> Self;
    fn rsqrt(self) -> Self;
}

impl Divide for f32 {
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
        rounding::div_f32(self, b, mode)
    }
    fn round_sqrt(self, mode: Round) -> Self {
        rounding::sqrt_f32(self, mode)
    }
    #[inline(always)]
    fn rsqrt(self) -> Self {
        (1.0 / f64::from(self).sqrt()) as Self
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
    #[inline(always)]
    fn rsqrt(self) -> Self {
        1.0 / self.sqrt()
    }
}

/// A [`Mode`] of a type that divides.
pub(crate) trait DivideMode: Mode<F: Divide> {}
impl<M: Mode<F: Divide>> DivideMode for M {}

unary! {
    Rcp<M: DivideMode>: M::F => M::F, |a, imm| M::result(M::F::ONE.div(M::operand(a, imm)), imm);
    Sqrt<M: DivideMode>: M::F => M::F, |a, imm| M::result(M::operand(a, imm).sqrt(), imm);
    Rsqrt<M: DivideMode>: M::F => M::F, |a, imm| M::result(M::operand(a, imm).rsqrt(), imm);
    #[slow] RcpRound<M: DivideMode>: M::F => M::F, |a, imm| M::result(M::F::ONE.round_div(M::operand(a, imm), mode(imm)), imm);
    #[slow] SqrtRound<M: DivideMode>: M::F => M::F, |a, imm| M::result(M::operand(a, imm).round_sqrt(mode(imm)), imm);
    #[slow] Ex2<M: Mode>: M::F => M::F, |a, imm| M::result(M::operand(a, imm).each(f32::exp2), imm);
    #[slow] Lg2<M: Mode>: M::F => M::F, |a, imm| M::result(M::operand(a, imm).each(f32::log2), imm);
    #[slow] Sin<M: Mode>: M::F => M::F, |a, imm| M::result(M::operand(a, imm).each(f32::sin), imm);
    #[slow] Cos<M: Mode>: M::F => M::F, |a, imm| M::result(M::operand(a, imm).each(f32::cos), imm);
    #[slow] Tanh<M: Mode>: M::F => M::F, |a, imm| M::result(M::operand(a, imm).each(f32::tanh), imm);
}

binary! {
    Div<M: DivideMode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).div(M::operand(b, imm)), imm);
    #[slow] DivRound<M: DivideMode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).round_div(M::operand(b, imm), mode(imm)), imm);
}

/// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`: the upper half of the result's bits.
struct Upper<const ROOT: bool>;

impl<const ROOT: bool> Unary for Upper<ROOT> {
    type A = f64;
    type D = f64;
    #[inline(always)]
    fn apply(a: f64, _imm: u64) -> f64 {
        let a = Float::flush(a);
        let r = Float::flush(1.0 / if ROOT { a.sqrt() } else { a });
        f64::from_bits(r.to_bits() & !0xFFFF_FFFF)
    }
}

macro_rules! by_native {
    ($ty:expr, $imm:expr, $make:ident, $op:ident) => {
        match ($ty, $imm) {
            (T::F32, 0) => Some(map::$make::<$op<Plain<f32>>>()),
            (T::F32, FTZ) => Some(map::$make::<$op<Flush<f32>>>()),
            (T::F32, imm) => Some(map::$make::<$op<Modal<f32>>>().with(imm)),
            (T::F64, 0) => Some(map::$make::<$op<Plain<f64>>>()),
            (T::F64, imm) if imm & FTZ == 0 => Some(map::$make::<$op<Modal<f64>>>().with(imm)),
            _ => None,
        }
    };
}

macro_rules! by_function {
    ($ty:expr, $imm:expr, $op:ident) => {
        match $ty {
            T::F32 => Some(map::unary::<$op<Modal<f32>>>().with($imm)),
            T::F16 => Some(map::unary::<$op<Modal<f16>>>().with($imm)),
            T::F16x2 => Some(map::unary::<$op<Modal<Two<f16>>>>().with($imm)),
            T::BF16 => Some(map::unary::<$op<Modal<bf16>>>().with($imm)),
            T::BF16x2 => Some(map::unary::<$op<Modal<Two<bf16>>>>().with($imm)),
            _ => None,
        }
    };
}

/// Chooses the handler of a division, a root or an approximated function.
pub(crate) fn pick(form: &mut Form<'_>) -> Option<Pick> {
    let approx = form.take_one(&["approx", "full"]);
    let round = form.take_one(&["rn", "rz", "rm", "rp"]);
    let imm = take_mode(form);
    let ty = form.ty()?;
    if approx.is_some() == round.is_some() {
        return None;
    }
    match (form.opcode(), approx, ty) {
        ("rcp", Some("approx"), T::F64) if imm == FTZ => return Some(map::unary::<Upper<false>>()),
        ("rsqrt", Some("approx"), T::F64) if imm == FTZ => return Some(map::unary::<Upper<true>>()),
        (_, Some("full"), _) if form.opcode() != "div" => return None,
        _ => {}
    }
    let directed = round.map_or(0, Round::code);
    if directed != 0 {
        let imm = imm | directed << ROUND;
        return match form.opcode() {
            "div" => by_native!(ty, imm, binary, DivRound),
            "rcp" => by_native!(ty, imm, unary, RcpRound),
            "sqrt" => by_native!(ty, imm, unary, SqrtRound),
            _ => None,
        };
    }
    match (form.opcode(), approx.is_some()) {
        ("div", _) => by_native!(ty, imm, binary, Div),
        ("rcp", _) => by_native!(ty, imm, unary, Rcp),
        ("sqrt", _) => by_native!(ty, imm, unary, Sqrt),
        ("rsqrt", true) => by_native!(ty, imm, unary, Rsqrt),
        ("ex2", true) => by_function!(ty, imm, Ex2),
        ("lg2", true) => by_function!(ty, imm, Lg2),
        ("sin", true) => by_function!(ty, imm, Sin),
        ("cos", true) => by_function!(ty, imm, Cos),
        ("tanh", true) => by_function!(ty, imm, Tanh),
        _ => None,
    }
}
