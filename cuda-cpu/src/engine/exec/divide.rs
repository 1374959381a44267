//! Division, reciprocals and square roots, rounded as IEEE 754 has it.

use cuda_ptx::ScalarType as T;

use super::arith_float::{FTZ, Flush, Modal, Mode, Plain, ROUND};
use super::directed::mode;
use super::float::Float;
use super::macros::{binary, unary};
use super::map::{self, Pick};
use super::rounding::{self, Round};

/// The native types, with division and roots.
pub(crate) trait Divide: Float {
    const ONE: Self;
    fn div(self, b: Self) -> Self;
    fn sqrt(self) -> Self;
    fn round_div(self, b: Self, mode: Round) -> Self;
    fn round_sqrt(self, mode: Round) -> Self;
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
}

/// A [`Mode`] of a type that divides.
pub(crate) trait DivideMode: Mode<F: Divide> {}
impl<M: Mode<F: Divide>> DivideMode for M {}

unary! {
    Rcp<M: DivideMode>: M::F => M::F, |a, imm| M::result(M::F::ONE.div(M::operand(a, imm)), imm);
    Sqrt<M: DivideMode>: M::F => M::F, |a, imm| M::result(M::operand(a, imm).sqrt(), imm);
    #[slow] RcpRound<M: DivideMode>: M::F => M::F, |a, imm| M::result(M::F::ONE.round_div(M::operand(a, imm), mode(imm)), imm);
    #[slow] SqrtRound<M: DivideMode>: M::F => M::F, |a, imm| M::result(M::operand(a, imm).round_sqrt(mode(imm)), imm);
}

binary! {
    Div<M: DivideMode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).div(M::operand(b, imm)), imm);
    #[slow] DivRound<M: DivideMode>: M::F, M::F => M::F, |a, b, imm| M::result(M::operand(a, imm).round_div(M::operand(b, imm), mode(imm)), imm);
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

/// Chooses the handler of `div`, `rcp` or `sqrt` with a rounding mode.
pub(super) fn pick(opcode: &str, ty: T, round: &str, imm: u64) -> Option<Pick> {
    let directed = Round::code(round);
    if directed != 0 {
        let imm = imm | directed << ROUND;
        return match opcode {
            "div" => by_native!(ty, imm, binary, DivRound),
            "rcp" => by_native!(ty, imm, unary, RcpRound),
            "sqrt" => by_native!(ty, imm, unary, SqrtRound),
            _ => None,
        };
    }
    match opcode {
        "div" => by_native!(ty, imm, binary, Div),
        "rcp" => by_native!(ty, imm, unary, Rcp),
        "sqrt" => by_native!(ty, imm, unary, Sqrt),
        _ => None,
    }
}
