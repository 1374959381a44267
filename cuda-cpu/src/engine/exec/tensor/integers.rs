//! `mma` of 8-bit and 4-bit integers and of single bits.

use super::layout::{lines, set_sums, sums};
use super::{twice, whole_warp};
use crate::engine::ctx::Ctx;
use crate::engine::op::{Flow, Op};

/// How a word of A and one of B are multiplied and summed up.
pub(crate) trait Dot: 'static {
    fn dot(a: u32, b: u32) -> i32;
}

/// Integers of `BITS` bits, signed or not.
pub(crate) struct Integers<const BITS: u32, const A_SIGNED: bool, const B_SIGNED: bool>;

#[inline(always)]
pub(super) fn element<const BITS: u32, const SIGNED: bool>(word: u32, index: u32) -> i32 {
    let top = word << (32 - BITS - index * BITS);
    if SIGNED { top as i32 >> (32 - BITS) } else { (top >> (32 - BITS)) as i32 }
}

impl<const BITS: u32, const A: bool, const B: bool> Dot for Integers<BITS, A, B> {
    #[inline(always)]
    fn dot(a: u32, b: u32) -> i32 {
        (0..32 / BITS).map(|i| element::<BITS, A>(a, i) * element::<BITS, B>(b, i)).sum()
    }
}

/// `.and.popc`
pub(crate) struct And;
/// `.xor.popc`
pub(crate) struct Xor;

impl Dot for And {
    #[inline(always)]
    fn dot(a: u32, b: u32) -> i32 {
        (a & b).count_ones() as i32
    }
}

impl Dot for Xor {
    #[inline(always)]
    fn dot(a: u32, b: u32) -> i32 {
        (a ^ b).count_ones() as i32
    }
}

/// `M` rows of `W` words. `imm` 1: the sum with C saturates, else it wraps.
#[inline(always)]
fn integers<O: Dot, const M: usize, const W: usize>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let (of_a, of_b, of_c) = (M / 4, M / 4 + M * W / 32, M / 4 + M * W / 32 + W / 4);
    let a = lines::<u32, M, W>(ctx, op, of_a);
    let b = lines::<u32, 8, W>(ctx, op, of_b);
    let mut d = sums::<u32, M>(ctx, op, of_c);
    for i in 0..M {
        for n in 0..8 {
            let sum: i32 = (0..W).map(|w| O::dot(a[i][w], b[n][w])).sum();
            let c = d[i][n] as i32;
            d[i][n] = if op.imm == 1 { c.saturating_add(sum) } else { c.wrapping_add(sum) } as u32;
        }
    }
    set_sums(ctx, op, &d);
    Flow::Next
}

twice! {
    /// The handler for `M` rows of `W` words.
    pick, integers, [O: Dot, const M: usize, const W: usize], [O, M, W]
}
