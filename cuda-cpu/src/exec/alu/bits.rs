//! Bit operations: logic, shifts, fields, counting and permutation.

use crate::exec::map;
use crate::exec::map::{Ternary, binary_ops, ternary_ops, unary_ops};
use crate::exec::number::int::Int;

unary_ops! {
    Not<I: Int>: I => I, |a| a.not();
    Cnot<I: Int>: I => I, |a| I::from_bits(u64::from(a == I::default()));
    Popc<I: Int>: I => u32, |a| a.bits().count_ones();
    Clz<I: Int>: I => u32, |a| a.bits().leading_zeros() - (64 - I::BITS);
    Brev<I: Int>: I => I, |a| I::from_bits(a.bits().reverse_bits() >> (64 - I::BITS));
    #[rare] Bfind<I: Int>: I => u32, |a, imm| bfind(a.to_i128(), I::BITS, imm != 0);
}

binary_ops! {
    And<I: Int>: I, I => I, |a, b| a.and(b);
    Or<I: Int>: I, I => I, |a, b| a.or(b);
    Xor<I: Int>: I, I => I, |a, b| a.xor(b);
    Shl<I: Int>: I, u32 => I, |a, b| a.shl(b);
    Shr<I: Int>: I, u32 => I, |a, b| a.shr(b);
    #[rare] Bmsk<I: Int>: I, u32 => u32, |a, b, imm| bmsk(a.bits() as u32, b, imm != 0);
    #[rare] Szext<I: Int>: I, u32 => I, |a, b, imm| szext(a, b, imm != 0);
}

ternary_ops! {
    Bfe<I: Int>: I, u32, u32 => I, |a, b, c| bfe(a, b, c);
    #[slow] Fns<I: Int>: I, u32, i32 => u32, |a, b, c| fns(a.bits() as u32, b, c);
    Prmt<I: Int>: I, u32, u32 => u32, |a, b, c, imm| prmt(a.bits() as u32, b, c, imm);
    Shf<I: Int>: I, u32, u32 => u32, |a, b, c, imm| shf(a.bits() as u32, b, c, imm);
}

/// `lop3`. The look-up table is in `imm`.
pub(crate) struct Lop3;

impl Ternary for Lop3 {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, b: u32, c: u32, imm: u64) -> u32 {
        let bit = |n: u64| 0u32.wrapping_sub(((imm >> n) & 1) as u32);
        (!a & !b & !c & bit(0))
            | (!a & !b & c & bit(1))
            | (!a & b & !c & bit(2))
            | (!a & b & c & bit(3))
            | (a & !b & !c & bit(4))
            | (a & !b & c & bit(5))
            | (a & b & !c & bit(6))
            | (a & b & c & bit(7))
    }
}

/// `bfi`. It has four operands, so position and length are packed in one register (see `decode::alu::bits`).
pub(crate) struct Bfi<I>(std::marker::PhantomData<I>);

impl<I: Int> Ternary for Bfi<I> {
    type A = I;
    type B = I;
    type C = u32;
    type D = I;
    #[inline(always)]
    fn apply(a: I, b: I, packed: u32, _imm: u64) -> I {
        let (at, len) = (packed & 0xFF, packed >> 8);
        if at >= I::BITS || len == 0 {
            return b;
        }
        let len = len.min(I::BITS - at);
        let ones = (u64::MAX >> (64 - len)) << at;
        I::from_bits((b.bits() & !ones) | ((a.bits() << at) & ones))
    }
}

/// Packs position and length for [`Bfi`]. Each is clamped to 255, as the instruction does.
pub(crate) struct PackField;

impl map::Binary for PackField {
    type A = u32;
    type B = u32;
    type D = u32;
    #[inline(always)]
    fn apply(at: u32, len: u32, _imm: u64) -> u32 {
        (at & 0xFF) | ((len & 0xFF) << 8)
    }
}

fn bfind(a: i128, bits: u32, shift_amount: bool) -> u32 {
    // For signed numbers, finds the most significant bit that differs from the sign.
    let magnitude = if a < 0 { !a } else { a } as u128;
    if magnitude == 0 {
        return u32::MAX;
    }
    let at = 127 - magnitude.leading_zeros();
    if shift_amount { bits - 1 - at } else { at }
}

fn bmsk(at: u32, len: u32, wrap: bool) -> u32 {
    let (at, len) = if wrap { (at & 31, len & 31) } else { (at.min(32), len.min(32)) };
    let ones = if len == 32 { u32::MAX } else { (1 << len) - 1 };
    if at == 32 { 0 } else { ones << at }
}

fn szext<I: Int>(a: I, len: u32, wrap: bool) -> I {
    let len = if wrap { len & 31 } else { len.min(32) };
    if len == 0 {
        return I::default();
    }
    let up = I::BITS - len.min(I::BITS);
    a.shl(up).shr(up)
}

fn bfe<I: Int>(a: I, at: u32, len: u32) -> I {
    let (at, len) = (at & 0xFF, len & 0xFF);
    if len == 0 {
        return I::default();
    }
    // A field that extends beyond the top is filled with the sign or with zeros. Shifting the value right does the
    // same.
    let len = len.min(I::BITS);
    let shifted = a.shr(at);
    let up = if at >= I::BITS || len + at > I::BITS { 0 } else { I::BITS - len };
    shifted.shl(up).shr(up)
}

/// Returns the position of the n-th set bit from `base`: upwards for a positive `offset`, downwards for a negative one.
fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    let none = u32::MAX;
    if base > 31 {
        return none;
    }
    if offset == 0 {
        return if mask >> base & 1 != 0 { base } else { none };
    }
    let step = offset.signum();
    let mut left = offset.unsigned_abs();
    let mut at = base as i32;
    while (0..32).contains(&at) {
        left -= mask >> at & 1;
        if left == 0 {
            return at as u32;
        }
        at += step;
    }
    none
}

/// `mode` is 0 for the general form, otherwise the position, from 1, among `f4e`, `b4e`, `rc8`, `ecl`, `ecr` and
/// `rc16`.
#[inline(always)]
fn prmt(a: u32, b: u32, c: u32, mode: u64) -> u32 {
    let bytes = u64::from(a) | u64::from(b) << 32;
    let n = c & 3;
    (0..4).fold(0, |out, i: u32| {
        let pick = match mode {
            0 => c >> (4 * i) & 0xF,
            1 => n + i,
            2 => n.wrapping_sub(i) & 7,
            3 => n,
            4 => n.max(i),
            5 => n.min(i),
            _ => (n & 1) * 2 + (i & 1),
        };
        let byte = (bytes >> (8 * (pick & 7))) as u32 & 0xFF;
        let sign = mode == 0 && pick & 8 != 0;
        let byte = if sign { 0u32.wrapping_sub(byte >> 7) & 0xFF } else { byte };
        out | byte << (8 * i)
    })
}

/// `imm` bits of `shf`.
pub(crate) const SHF_RIGHT: u64 = 1;
pub(crate) const SHF_WRAP: u64 = 2;

#[inline(always)]
fn shf(a: u32, b: u32, by: u32, imm: u64) -> u32 {
    let by = if imm & SHF_WRAP != 0 { by & 31 } else { by.min(32) };
    let both = u64::from(b) << 32 | u64::from(a);
    if imm & SHF_RIGHT != 0 { (both >> by) as u32 } else { ((both << by) >> 32) as u32 }
}
