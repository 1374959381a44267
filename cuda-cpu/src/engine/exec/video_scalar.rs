//! Scalar video instructions, as an H200 runs them.
//!
//! It has no circuits for them: its assembler makes sequences of others, which do not do all that the manual says.
//! What saturates an unsigned result lets a carry go; what is merged into the upper half is a result's upper half; a
//! secondary minimum sees some results as signed. So it is here too: each form was compared with an H200's results.

use super::map::Ternary;
use super::video::{
    A_PART_AT, A_SIGNED, ACCUMULATE, B_PART_AT, B_SIGNED, D_SIGNED, LARGER, MASK_AT, NEGATE_C,
    NEGATE_PRODUCT, PLUS_ONE, SATURATE, SCALE_AT, SMALLER, Video, clamp, extract, field, flag,
    operation, place, primary,
};

/// One result of parts of `a` and `b`.
pub(crate) struct Scalar;

impl Ternary for Scalar {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    const SLOW: bool = true;
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

/// The low bits of a number, the uppermost of them its sign.
fn low(x: i128, bits: u32) -> i128 {
    x << (128 - bits) >> (128 - bits)
}

/// As 64 bits without a sign.
fn unsigned(x: i128) -> i128 {
    x & i128::from(u64::MAX)
}

/// Whether the result has a sign: a comparison's has that of its first operand.
fn is_signed(imm: u64) -> bool {
    flag(imm, if operation(imm) == Video::Set { A_SIGNED } else { D_SIGNED })
}

/// To 32 bits.
fn saturate(imm: u64, x: i128) -> i128 {
    let compared = flag(imm, SMALLER | LARGER);
    match operation(imm) {
        _ if is_signed(imm) => clamp(x, 32, true),
        Video::ShiftLeft if compared => low(clamp(x, 32, false), 32),
        Video::ShiftLeft => clamp(x, 32, false),
        Video::AbsDiff if compared => x,
        // Not what is too large.
        Video::Min | Video::Max => x.max(0) & i128::from(u32::MAX),
        _ if compared => low(x.max(0), 32),
        _ => x.max(0),
    }
}

/// What is done with `c`.
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

/// `c` with the result in the place of one of its parts.
fn merge(imm: u64, x: i128, part: u64, c: u32) -> u32 {
    let (at, bits) = place(part);
    let shifts = matches!(operation(imm), Video::ShiftLeft | Video::ShiftRight);
    let x = match (flag(imm, SATURATE), shifts) {
        (false, _) => x,
        (true, true) => clamp(x, 32, is_signed(imm)),
        // A negative one is large.
        (true, false) => unsigned(x).min((1 << (bits - u32::from(is_signed(imm)))) - 1),
    };
    let x = if at == 16 && bits == 16 { x as u32 >> 16 } else { x as u32 };
    let mask = (u32::MAX >> (32 - bits)) << at;
    c & !mask | x << at & mask
}

/// Factors, product and `c` are taken as signed; the result is shifted and saturates as what its operands are.
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
