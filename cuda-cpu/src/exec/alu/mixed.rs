//! `add`, `sub` and `fma` of halves with an f32, as in `fma.rn.f32.f16 d, a, b, c;`.

use half::{bf16, f16};

use super::{
    directed::Directed,
    float_modifiers::{Modal, Mode, ROUND, SAT},
};
use crate::exec::{
    macros::{binary, ternary},
    number::{float::Float, lane::Lane},
};

/// A half type. All its values are exact in f32.
pub(crate) trait Half: Lane<Raw = u32> + Into<f32> {}
impl Half for f16 {}
impl Half for bf16 {}

#[inline(always)]
fn sum(a: f32, c: f32, imm: u64) -> f32 {
    let nearest = imm >> ROUND == 0;
    Modal::<f32>::result(if nearest { a + c } else { f32::round_add(a, c, imm) }, imm & SAT)
}

#[inline(always)]
fn product_sum(a: f32, b: f32, c: f32, imm: u64) -> f32 {
    let nearest = imm >> ROUND == 0;
    let r = if nearest { Float::fma(a, b, c) } else { f32::round_fma(a, b, c, imm) };
    Modal::<f32>::result(r, imm & SAT)
}

binary! {
    #[rare] Add<H: Half>: H, f32 => f32, |a, c, imm| sum(a.into(), c, imm);
    #[rare] Sub<H: Half>: H, f32 => f32, |a, c, imm| sum(a.into(), c.negated(), imm);
}

ternary! {
    #[rare] Fma<H: Half>: H, H, f32 => f32, |a, b, c, imm| product_sum(a.into(), b.into(), c, imm);
}
