//! Floating-point arithmetic: `add`, `sub`, `mul`, `fma`, `min`, `max`, `neg`, `abs` and `copysign` of all types.

use super::float_modifiers::Mode;
use crate::exec::{
    macros::{binary, ternary, unary},
    number::float::Float,
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
