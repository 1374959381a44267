//! `mma.m8n8k4` of f16: four small multiplications, one for each pair of groups of four lanes.
//!
//! The instruction is from Volta. An H200 has no hardware for it, and its driver emits f32 multiply-adds. The order of
//! those is the same here.

use half::f16;

use super::whole_warp;
use crate::exec::number::float::NAN32;
use crate::lanes::FULL;
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

/// `imm` bits: A is stored by columns, B is stored by rows, C is f32, D is f32.
pub(crate) const A_COLUMNS: u64 = 1;
pub(crate) const B_ROWS: u64 = 2;
pub(crate) const C_SINGLE: u64 = 4;
pub(crate) const D_SINGLE: u64 = 8;

/// One matrix for each of the four multiplications.
type Four<const M: usize, const N: usize> = [[[f32; N]; M]; 4];

/// Returns the multiplication of a lane, and its place among the eight lanes.
fn place(lane: usize) -> (usize, usize) {
    (lane >> 2 & 3, (lane & 3) | (lane >> 4) << 2)
}

fn half(bits: u32) -> f32 {
    f16::from_bits(bits as u16).to_f32()
}

/// Reads eight vectors of four elements. A lane has one vector, or if `across`, an element of each of four vectors.
fn vectors(ctx: &Ctx<'_>, op: &Op, first: usize, across: bool) -> Four<8, 4> {
    let mut all = [[[0.0; 4]; 8]; 4];
    for register in 0..2 {
        let words = ctx.read::<u32>(ctx.extra(op, first + register));
        for (lane, word) in words.into_iter().enumerate() {
            let (quad, at) = place(lane);
            for (i, bits) in [word & 0xFFFF, word >> 16].into_iter().enumerate() {
                let i = 2 * register + i;
                let (vector, element) = if across { ((at & 4) + i, at & 3) } else { (at, i) };
                all[quad][vector][element] = half(bits);
            }
        }
    }
    all
}

/// Returns the row and column of element `i` of a lane's f32 accumulators.
fn single_place(at: usize, i: usize) -> (usize, usize) {
    ((at & 4) + (at & 1) + (i & 2), (i & 4) + (at & 2) + (i & 1))
}

fn accumulators(ctx: &Ctx<'_>, op: &Op, first: usize) -> Four<8, 8> {
    let mut all = [[[0.0; 8]; 8]; 4];
    let single = op.imm & C_SINGLE != 0;
    for i in 0..8 {
        let register = if single { i } else { i / 2 };
        let words = ctx.read::<u32>(ctx.extra(op, first + register));
        for (lane, word) in words.into_iter().enumerate() {
            let (quad, at) = place(lane);
            let (row, column) = if single { single_place(at, i) } else { (at, i) };
            all[quad][row][column] =
                if single { f32::from_bits(word) } else { half(word >> (16 * (i & 1))) };
        }
    }
    all
}

/// Multiplies the matrices.
pub(crate) fn quads(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let single = op.imm & D_SINGLE != 0;
    let of_a = if single { 8 } else { 4 };
    let a = vectors(ctx, op, of_a, op.imm & A_COLUMNS != 0);
    let b = vectors(ctx, op, of_a + 2, op.imm & B_ROWS != 0);
    let mut d = accumulators(ctx, op, of_a + 4);
    for (quad, d) in d.iter_mut().enumerate() {
        for (row, d) in d.iter_mut().enumerate() {
            for (column, d) in d.iter_mut().enumerate() {
                let (x, y) = (&a[quad][row], &b[quad][column]);
                *d = if single { chained(x, y, *d) } else { paired(x, y, *d) };
            }
        }
    }
    if single {
        write_single(ctx, op, &d);
    } else {
        write_half(ctx, op, &d);
    }
    Flow::Next
}

/// For f32 results: all products are summed before C is added.
fn chained(a: &[f32; 4], b: &[f32; 4], c: f32) -> f32 {
    c + (0..4).fold(0.0, |sum, k| a[k].mul_add(b[k], sum))
}

/// For f16 results: two products are added at a time.
fn paired(a: &[f32; 4], b: &[f32; 4], c: f32) -> f32 {
    let pair = |k: usize| a[k + 1].mul_add(b[k + 1], a[k] * b[k]);
    (c + pair(0)) + pair(2)
}

fn write_single(ctx: &mut Ctx<'_>, op: &Op, d: &Four<8, 8>) {
    for i in 0..8 {
        let words = std::array::from_fn(|lane| {
            let (quad, at) = place(lane);
            let (row, column) = single_place(at, i);
            let sum = d[quad][row][column];
            if sum.is_nan() { NAN32 } else { sum.to_bits() }
        });
        ctx.write::<u32>(ctx.extra(op, i), FULL, &words);
    }
}

fn write_half(ctx: &mut Ctx<'_>, op: &Op, d: &Four<8, 8>) {
    for i in 0..4 {
        let words = std::array::from_fn(|lane| {
            let (quad, at) = place(lane);
            let bits = |column: usize| {
                let sum = f16::from_f32(d[quad][at][column]);
                u32::from(if sum.is_nan() { 0x7FFF } else { sum.to_bits() })
            };
            bits(2 * i) | bits(2 * i + 1) << 16
        });
        ctx.write::<u32>(ctx.extra(op, i), FULL, &words);
    }
}
