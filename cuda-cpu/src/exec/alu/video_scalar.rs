//! Scalar video instructions, with the same results as an H200.
//!
//! The H200 has no hardware for them. Its assembler emits instruction sequences that deviate from the manual in some
//! cases: saturation of an unsigned result drops a carry, a merge into the upper half takes a result's upper half, and
//! a secondary minimum treats some results as signed. This file does the same. Each form was compared with an H200.

use super::video::{
    A_PART_AT, A_SIGNED, ACCUMULATE, B_PART_AT, B_SIGNED, D_SIGNED, LARGER, MASK_AT, NEGATE_C,
    NEGATE_PRODUCT, PLUS_ONE, SATURATE, SCALE_AT, SMALLER, Video, clamp, extract, field, flag,
    operation, place, primary,
};
use crate::exec::map::Ternary;
use crate::lanes::simd::Level;

/// A scalar video instruction.
pub(crate) struct Scalar;

impl Ternary for Scalar {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    const TOP: Level = Level::Base;
    fn apply(a: u32, b: u32, c: u32, imm: u64) -> u32 {
        let part = |word: u32, at: u32, signed: bool| {
            let (low, bits) = place(field(imm, at, 4));
            extract(u64::from(word), low, bits, signed)
        };
        let a = part(a, A_PART_AT, flag(imm, A_SIGNED));
        let b = part(b, B_PART_AT, flag(imm, B_SIGNED));
        if operation(imm) == Video::MultiplyAdd {
            return multiply_add(imm, a, b, c);
        }
        let result = match operation(imm) {
            Video::ShiftLeft => low(primary(imm, a, b), if flag(imm, SATURATE) { 34 } else { 64 }),
            Video::Add | Video::Sub if !flag(imm, SATURATE) => low(primary(imm, a, b), 32),
            _ => primary(imm, a, b),
        };
        match field(imm, MASK_AT, 4) {
            0 if flag(imm, SATURATE) => second(imm, saturate(imm, result), c),
            0 => second(imm, result, c),
            part => merge(imm, result, part, c),
        }
    }
}

/// Returns the low bits of a number, sign-extended.
fn low(x: i128, bits: u32) -> i128 {
    x << (128 - bits) >> (128 - bits)
}

/// Returns the low 64 bits as an unsigned number.
fn unsigned(x: i128) -> i128 {
    x & i128::from(u64::MAX)
}

/// Returns whether the result is signed. For a comparison, this is the sign of its first operand.
fn is_signed(imm: u64) -> bool {
    flag(imm, if operation(imm) == Video::Set { A_SIGNED } else { D_SIGNED })
}

/// Saturates the result to 32 bits.
fn saturate(imm: u64, x: i128) -> i128 {
    let compared = flag(imm, SMALLER | LARGER);
    match operation(imm) {
        _ if is_signed(imm) => clamp(x, 32, true),
        Video::ShiftLeft if compared => low(clamp(x, 32, false), 32),
        Video::ShiftLeft => clamp(x, 32, false),
        Video::AbsDiff if compared => x,
        // Values that are too large are not saturated.
        Video::Min | Video::Max => x.max(0) & i128::from(u32::MAX),
        _ if compared => low(x.max(0), 32),
        _ => x.max(0),
    }
}

/// Performs the secondary operation with `c`.
fn second(imm: u64, x: i128, c: u32) -> u32 {
    let (x, c) = match is_signed(imm) {
        true => (x, i128::from(c as i32)),
        false if flag(imm, SMALLER | LARGER) => (unsigned(x), i128::from(c)),
        false => (x, i128::from(c)),
    };
    let result = if flag(imm, SMALLER) {
        x.min(c)
    } else if flag(imm, LARGER) {
        x.max(c)
    } else if flag(imm, ACCUMULATE) {
        x + c
    } else {
        x
    };
    result as u32
}

/// Merges the result into a part of `c`.
fn merge(imm: u64, x: i128, part: u64, c: u32) -> u32 {
    let (at, bits) = place(part);
    let shifts = matches!(operation(imm), Video::ShiftLeft | Video::ShiftRight);
    let x = match (flag(imm, SATURATE), shifts) {
        (false, _) => x,
        (true, true) => clamp(x, 32, is_signed(imm)),
        // A negative number counts as large.
        (true, false) => unsigned(x).min((1 << (bits - u32::from(is_signed(imm)))) - 1),
    };
    let x = if at == 16 && bits == 16 { x as u32 >> 16 } else { x as u32 };
    let mask = (u32::MAX >> (32 - bits)) << at;
    c & !mask | x << at & mask
}

/// `vmad`. The factors, the product and `c` are signed. The result is shifted and saturated by the operands' signs.
fn multiply_add(imm: u64, a: i128, b: i128, c: u32) -> u32 {
    let product = low(a, 32) * low(b, 32);
    let product = if flag(imm, NEGATE_PRODUCT) { -product } else { product };
    let c = i128::from(c as i32);
    let sum = if flag(imm, NEGATE_C) { product - c } else { product + c };
    let sum = low(sum + i128::from(flag(imm, PLUS_ONE)), 64);
    let signed = flag(imm, A_SIGNED | B_SIGNED | NEGATE_PRODUCT | NEGATE_C);
    let sum = if signed { sum } else { unsigned(sum) } >> field(imm, SCALE_AT, 4);
    let sum = low(sum, 64);
    (if flag(imm, SATURATE) { clamp(sum, 32, signed) } else { sum }) as u32
}
