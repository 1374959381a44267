//! Video instructions: arithmetic on bytes and halfwords selected from words.
//!
//! All instructions of one shape share a handler, and `imm` encodes the operation. They are rare and their cost is not
//! important, so the operation is decoded at run time.

use crate::exec::map::Ternary;
use crate::lanes::simd::Level;

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Video {
    Add,
    Sub,
    AbsDiff,
    Min,
    Max,
    Average,
    ShiftLeft,
    ShiftRight,
    Set,
    MultiplyAdd,
}

/// The operations by their number in `imm`.
const VIDEO: [Video; 10] = [
    Video::Add,
    Video::Sub,
    Video::AbsDiff,
    Video::Min,
    Video::Max,
    Video::Average,
    Video::ShiftLeft,
    Video::ShiftRight,
    Video::Set,
    Video::MultiplyAdd,
];

// Layout of `imm`: the operation in the low four bits, then flags and fields.
pub(crate) const D_SIGNED: u64 = 1 << 4;
pub(crate) const A_SIGNED: u64 = 1 << 5;
pub(crate) const B_SIGNED: u64 = 1 << 6;
pub(crate) const SATURATE: u64 = 1 << 7;
pub(crate) const WRAP: u64 = 1 << 8;
pub(crate) const NEGATE_PRODUCT: u64 = 1 << 9;
pub(crate) const NEGATE_C: u64 = 1 << 10;
/// The results are added to `c`.
pub(crate) const ACCUMULATE: u64 = 1 << 11;
/// The result is the minimum, or the maximum, of the scalar result and `c`.
pub(crate) const SMALLER: u64 = 1 << 12;
pub(crate) const LARGER: u64 = 1 << 13;
/// Positions of fields with several bits.
pub(crate) const COMPARE_AT: u32 = 14;
/// `.po`: adds one to the result.
pub(crate) const PLUS_ONE: u64 = 1 << 19;
/// Shift of `vmad`'s result, in bits.
pub(crate) const SCALE_AT: u32 = 20;
/// The parts of `d` that a SIMD instruction writes, or the part that a scalar instruction writes.
pub(crate) const MASK_AT: u32 = 24;
/// Parts of `a` and `b`.
pub(crate) const A_PART_AT: u32 = 28;
pub(crate) const B_PART_AT: u32 = 40;

/// Returns the code of a part: 0 for the whole word, 1 to 4 for its bytes, 5 and 6 for its halves.
pub(crate) fn part_code(part: &str) -> Option<u64> {
    Some(match part {
        "" => 0,
        "b0" => 1,
        "b1" => 2,
        "b2" => 3,
        "b3" => 4,
        "h0" => 5,
        "h1" => 6,
        _ => return None,
    })
}

pub(super) fn operation(imm: u64) -> Video {
    VIDEO.get(imm as usize & 15).copied().unwrap_or(Video::Add)
}

pub(super) fn flag(imm: u64, bit: u64) -> bool {
    imm & bit != 0
}

pub(super) fn field(imm: u64, at: u32, bits: u32) -> u64 {
    imm >> at & ((1 << bits) - 1)
}

/// Returns the lowest bit and the width of a part.
pub(super) fn place(code: u64) -> (u32, u32) {
    match code {
        0 => (0, 32),
        1..=4 => (8 * (code as u32 - 1), 8),
        _ => (16 * (code as u32 - 5), 16),
    }
}

/// Returns the `bits` bits that start at bit `at`, as a number.
pub(super) fn extract(word: u64, at: u32, bits: u32, signed: bool) -> i128 {
    let up = word >> at << (64 - bits);
    if signed { i128::from(up as i64 >> (64 - bits)) } else { i128::from(up >> (64 - bits)) }
}

pub(super) fn clamp(x: i128, bits: u32, signed: bool) -> i128 {
    let (low, high) =
        if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    x.clamp(low, high)
}

pub(super) fn primary(imm: u64, a: i128, b: i128) -> i128 {
    match operation(imm) {
        Video::Add => a + b,
        Video::Sub => a - b,
        Video::AbsDiff => (a - b).abs(),
        Video::Min => a.min(b),
        Video::Max => a.max(b),
        Video::Average => (a + b + i128::from(a + b >= 0)) >> 1,
        Video::ShiftLeft => a << shift(imm, b),
        Video::ShiftRight => a >> shift(imm, b),
        Video::Set => i128::from(match field(imm, COMPARE_AT, 3) {
            0 => a == b,
            1 => a != b,
            2 => a < b,
            3 => a <= b,
            4 => a > b,
            _ => a >= b,
        }),
        Video::MultiplyAdd => a * b,
    }
}

fn shift(imm: u64, by: i128) -> u32 {
    let by = by as u32;
    if flag(imm, WRAP) { by & 31 } else { by.min(32) }
}

/// A SIMD instruction with `PARTS` results. The masked results are added to `c`, or replace parts of it.
pub(crate) struct Simd<const PARTS: u32>;

impl<const PARTS: u32> Ternary for Simd<PARTS> {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    const TOP: Level = Level::Base;
    fn apply(a: u32, b: u32, c: u32, imm: u64) -> u32 {
        let bits = 32 / PARTS;
        let words = u64::from(b) << 32 | u64::from(a);
        let (mask, accumulate) = (field(imm, MASK_AT, 4), flag(imm, ACCUMULATE));
        let mut out = if accumulate { c } else { 0 };
        for i in 0..PARTS {
            let chosen = |at: u32| field(imm, at + 3 * i, 3) as u32 * bits;
            let x = extract(words, chosen(A_PART_AT), bits, flag(imm, A_SIGNED));
            let y = extract(words, chosen(B_PART_AT), bits, flag(imm, B_SIGNED));
            let mut result = primary(imm, x, y);
            if flag(imm, SATURATE) {
                result = clamp(result, bits, flag(imm, D_SIGNED));
            }
            let ones = u32::MAX >> (32 - bits);
            match (mask >> i & 1 != 0, accumulate) {
                (true, true) => out = out.wrapping_add(result as u32),
                (true, false) => out |= (result as u32 & ones) << (i * bits),
                (false, true) => {}
                (false, false) => out |= c & ones << (i * bits),
            }
        }
        out
    }
}

/// A scalar video instruction, with the same results as an H200.
///
/// The H200 has no hardware for them. Its assembler emits instruction sequences that deviate from the manual in some
/// cases: saturation of an unsigned result drops a carry, a merge into the upper half takes a result's upper half, and
/// a secondary minimum treats some results as signed. This code does the same. Each form was compared with an H200.
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
