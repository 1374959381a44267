//! `mma.sp`: multiplication by a sparse matrix A. Metadata give the positions of its elements.
//!
//! Of each four elements of a row, two are present. For 4-bit integers these are pairs of elements, and for tf32 one of
//! two elements is present. Four bits of metadata hold the two positions. The metadata are stored in the lanes'
//! registers in one of the layouts of [`Metadata`], which experiments on an H200 have confirmed. Products are summed as
//! for dense matrices.

use super::fused::{Accumulator, F16, Factor, Single, multiply};
use super::layout::{lines, set_sums, sums};
use super::mma::{A_E4M3, B_E4M3, SATURATES, added, element, masks, unpack};
use super::{twice, whole_warp};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

/// The layout of the metadata, as a code in `imm`. The selector is above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Metadata {
    /// 16 bits per row: one lane of each four holds those of its group's two rows.
    OneLane,
    /// 32 bits per row: two lanes hold those of the two rows, each one half of both.
    TwoLanesMixed,
    /// 32 bits per row: two lanes hold those of one row each.
    TwoLanes,
    /// 64 bits per row: all four lanes hold them, in pairs as in `TwoLanes`.
    FourLanes,
}

/// Positions in `imm` of the selector and of the other modes.
pub(crate) const SELECTOR: u32 = 4;
pub(crate) const MODES: u32 = 8;

/// Maximum number of groups of four elements in a row.
const FOURS: usize = 16;

/// For each row and group of four, the positions of the two present elements.
type Places = [[[u8; 2]; FOURS]; 16];

#[inline(never)]
fn places(ctx: &Ctx<'_>, op: &Op, register: usize) -> Places {
    let words = ctx.read::<u32>(ctx.extra(op, register));
    let selector = (op.imm >> SELECTOR & 3) as usize;
    let mut places = [[[0; 2]; FOURS]; 16];
    for (i, row) in places.iter_mut().enumerate() {
        let (first, lower) = (4 * (i % 8), i / 8);
        for (four, places) in row.iter_mut().enumerate() {
            let (lane, nibble) = match op.imm & 0xF {
                0 => (selector, 4 * lower + four % 4),
                1 => (2 * selector + four / 4 % 2, 4 * lower + four % 4),
                2 => (2 * selector + lower, four % 8),
                _ => (lower + 2 * (four / 8), four % 8),
            };
            let bits = words[first + (lane & 3)] >> (4 * nibble);
            *places = [bits & 3, bits >> 2 & 3].map(|place| place as u8);
        }
    }
    places
}

/// Returns the rows of B by which the `K` elements of each row of A are multiplied.
fn picks<const K: usize>(places: &Places, one_of_two: bool) -> [[u8; K]; 16] {
    places.map(|row| {
        std::array::from_fn(|k| match one_of_two {
            // An element takes two of the four positions.
            true => (2 * k) as u8 + (row[k][1] >> 1),
            false => (4 * (k / 2)) as u8 + row[k / 2][k % 2],
        })
    })
}

/// Multiplies matrices of `F`. A row of A has `W` words with `K` elements, a column of B has `V` words with `L`
/// elements.
pub(crate) fn sparse_floats<F, D, const W: usize, const K: usize, const V: usize, const L: usize>(
    ctx: &mut Ctx<'_>,
    op: &Op,
) -> Flow
where
    F: Factor,
    D: Accumulator,
{
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let (of_a, of_b) = (D::REGISTERS, D::REGISTERS + W / 2);
    let of_c = of_b + V / 4;
    let a = lines::<u32, 16, W>(ctx, op, of_a);
    let b = lines::<u32, 8, V>(ctx, op, of_b);
    let c = D::read(ctx, op, of_c);
    let picks = picks::<K>(&places(ctx, op, of_c + D::REGISTERS), F::PER_WORD == 1);
    let d = multiply::<F, D, D, W, K, V, L>(&a, &b, &c, &picks);
    D::write(ctx, op, &d);
    Flow::Next
}

/// Multiplies matrices of 8-bit floats, as `mma::bytes`: first every other group of four, with sums that start at
/// zero, then the other groups. C is added last.
pub(crate) fn sparse_bytes<const W: usize>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let a = lines::<u32, 16, 8>(ctx, op, 4);
    let b = lines::<u32, 8, W>(ctx, op, 8);
    let c = Single::read(ctx, op, 12);
    let modes = op.imm >> MODES;
    let (a_e4m3, b_e4m3) = (modes & A_E4M3 != 0, modes & B_E4M3 != 0);
    let all = picks::<32>(&places(ctx, op, 16), false);
    let halves = [false, true].map(|upper| unpack(&b, upper, b_e4m3));
    // The words of B with two halves each, in order.
    let b: [[u32; 32]; 8] =
        std::array::from_fn(|n| std::array::from_fn(|i| halves[i % 2][n][i / 2]));
    let mut d = [[0; 8]; 16];
    for upper in [false, true] {
        let a = unpack(&a, upper, a_e4m3);
        let first = 2 * usize::from(upper);
        let picks = all.map(|row| std::array::from_fn(|k| row[4 * (k / 2) + first + k % 2]));
        d = multiply::<F16, Single, Single, 8, 16, 32, 64>(&a, &b, &d, &picks);
    }
    Single::write(ctx, op, &added::<Single>(&c, &d));
    Flow::Next
}

/// Multiplies matrices of `BITS`-bit integers. A row of A has `W` words, a column of B has `V`, twice as many.
#[inline(always)]
fn sparse_integers<const BITS: u32, const W: usize, const V: usize>(
    ctx: &mut Ctx<'_>,
    op: &Op,
) -> Flow {
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let (of_a, of_b, of_c) = (4, 4 + W / 2, 4 + W / 2 + V / 4);
    let a = lines::<u32, 16, W>(ctx, op, of_a);
    let b = lines::<u32, 8, V>(ctx, op, of_b);
    let mut d = sums::<u32, 16>(ctx, op, of_c);
    let places = places(ctx, op, of_c + 4);
    let modes = op.imm >> MODES;
    let [mask_a, mask_b] = masks(modes, BITS);
    // Number of elements that share a position: one byte, or two elements of 4 bits.
    let per = 8 / BITS;
    for i in 0..16 {
        for n in 0..8 {
            let mut sum = 0;
            for unit in 0..4 * W as u32 {
                let row =
                    4 * (unit / 2) + u32::from(places[i][unit as usize / 2][unit as usize % 2]);
                for part in 0..per {
                    let at = |unit: u32| ((unit / 4) as usize, unit % 4 * per + part);
                    let ((word, index), (row, other)) = (at(unit), at(row));
                    sum += element::<BITS>(a[i][word], index, mask_a)
                        * element::<BITS>(b[n][row], other, mask_b);
                }
            }
            let c = d[i][n] as i32;
            let saturates = modes & SATURATES != 0;
            d[i][n] = if saturates { c.saturating_add(sum) } else { c.wrapping_add(sum) } as u32;
        }
    }
    set_sums(ctx, op, &d);
    Flow::Next
}

twice! {
    /// Returns the handler for integers.
    pick_sparse_integers, sparse_integers,
    [const BITS: u32, const W: usize, const V: usize],
    [BITS, W, V]
}
