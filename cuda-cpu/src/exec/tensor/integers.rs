//! `mma` of 8-bit and 4-bit integers and of single bits.

use super::layout::{lines, set_sums, sums};
use super::{twice, whole_warp};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

/// `imm` bits: the sum with C saturates instead of wrapping; the elements of A or B are signed.
pub(crate) const SATURATES: u64 = 1;
pub(crate) const A_SIGNED: u64 = 2;
pub(crate) const B_SIGNED: u64 = 4;

/// The product of a word of A and a word of B.
pub(crate) trait Dot: 'static {
    /// Size of an element in bits.
    const BITS: u32;
    fn dot(a: u32, b: u32, masks: [i32; 2]) -> i32;
}

/// Integers of `BITS` bits.
pub(crate) struct Integers<const BITS: u32>;

/// Returns a mask for the elements of A and B: all ones if signed, otherwise the low bits.
#[inline(always)]
pub(super) fn masks(imm: u64, bits: u32) -> [i32; 2] {
    [A_SIGNED, B_SIGNED].map(|signed| if imm & signed != 0 { -1 } else { (1 << bits) - 1 })
}

/// Returns an element of a word. `mask` removes the sign extension of unsigned elements.
#[inline(always)]
pub(super) fn element<const BITS: u32>(word: u32, index: u32, mask: i32) -> i32 {
    let top = word << (32 - BITS - index * BITS);
    (top as i32 >> (32 - BITS)) & mask
}

impl<const BITS: u32> Dot for Integers<BITS> {
    const BITS: u32 = BITS;
    #[inline(always)]
    fn dot(a: u32, b: u32, [mask_a, mask_b]: [i32; 2]) -> i32 {
        (0..32 / BITS).map(|i| element::<BITS>(a, i, mask_a) * element::<BITS>(b, i, mask_b)).sum()
    }
}

/// `.and.popc`
pub(crate) struct And;
/// `.xor.popc`
pub(crate) struct Xor;

impl Dot for And {
    const BITS: u32 = 1;
    #[inline(always)]
    fn dot(a: u32, b: u32, _: [i32; 2]) -> i32 {
        (a & b).count_ones() as i32
    }
}

impl Dot for Xor {
    const BITS: u32 = 1;
    #[inline(always)]
    fn dot(a: u32, b: u32, _: [i32; 2]) -> i32 {
        (a ^ b).count_ones() as i32
    }
}

/// Multiplies matrices with `M` rows of `W` words.
#[inline(always)]
fn integers<O: Dot, const M: usize, const W: usize>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let (of_a, of_b, of_c) = (M / 4, M / 4 + M * W / 32, M / 4 + M * W / 32 + W / 4);
    let a = lines::<u32, M, W>(ctx, op, of_a);
    let b = lines::<u32, 8, W>(ctx, op, of_b);
    let mut d = sums::<u32, M>(ctx, op, of_c);
    let masks = masks(op.imm, O::BITS);
    for i in 0..M {
        for n in 0..8 {
            let sum: i32 = (0..W).map(|w| O::dot(a[i][w], b[n][w], masks)).sum();
            let c = d[i][n] as i32;
            d[i][n] =
                if op.imm & SATURATES != 0 { c.saturating_add(sum) } else { c.wrapping_add(sum) }
                    as u32;
        }
    }
    set_sums(ctx, op, &d);
    Flow::Next
}

twice! {
    /// Returns the handler for `M` rows of `W` words.
    pick, integers, [O: Dot, const M: usize, const W: usize], [O, M, W]
}
