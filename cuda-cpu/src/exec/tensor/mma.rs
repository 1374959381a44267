//! The multiplications of `mma`: of f16, bf16, tf32 and 8-bit floats, of f64, of integers and single bits, and the four
//! small ones of `mma.m8n8k4`.

use half::f16;

use super::fused::{Accumulator, Dense, F16, Factor, Sums, multiply};
use super::layout::{lines, set_sums, sums};
use super::{twice, whole_warp};
use crate::exec::number::float::NAN32;
use crate::exec::number::rounding::{Round, fma_f64};
use crate::lanes::FULL;
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

/// Multiplies matrices of `F` with `K` products per element. A row of A has `W` words.
pub(crate) fn floats<F, C, D, const W: usize, const K: usize>(ctx: &mut Ctx<'_>, op: &Op) -> Flow
where
    F: Factor,
    C: Accumulator,
    D: Accumulator,
{
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let (of_a, of_b) = (D::REGISTERS, D::REGISTERS + W / 2);
    let a = lines::<u32, 16, W>(ctx, op, of_a);
    let b = lines::<u32, 8, W>(ctx, op, of_b);
    let c = C::read(ctx, op, of_b + W / 4);
    let d = multiply::<F, C, D, W, K, W, K>(&a, &b, &c, &Dense);
    D::write(ctx, op, &d);
    Flow::Next
}

/// Converts two bytes of each word to f16: the upper two or the lower two.
#[inline(always)]
pub(super) fn unpack<const M: usize, const W: usize>(
    lines: &[[u32; W]; M],
    upper: bool,
    e4m3: bool,
) -> [[u32; W]; M] {
    let half = |byte: u32| if e4m3 { E4M3[byte as usize & 0xFF] } else { (byte as u16) << 8 };
    lines.map(|line| {
        line.map(|word| {
            let word = if upper { word >> 16 } else { word };
            u32::from(half(word & 0xFF)) | u32::from(half(word >> 8 & 0xFF)) << 16
        })
    })
}

/// `imm` bits of [`bytes`]: A or B is e4m3, otherwise e5m2.
pub(crate) const A_E4M3: u64 = 1;
pub(crate) const B_E4M3: u64 = 2;

/// Multiplies matrices of 8-bit floats with `2 * K` products per element. A row of A has `W` words.
///
/// An H200 has no such multiplier for `mma`. Its driver converts the bytes to f16 and multiplies those: first the lower
/// two of each word, starting from zero, then the upper two. C is added last.
pub(crate) fn bytes<D: Accumulator, const W: usize, const K: usize>(
    ctx: &mut Ctx<'_>,
    op: &Op,
) -> Flow {
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let (of_a, of_b) = (D::REGISTERS, D::REGISTERS + W / 2);
    let a = lines::<u32, 16, W>(ctx, op, of_a);
    let b = lines::<u32, 8, W>(ctx, op, of_b);
    let c = D::read(ctx, op, of_b + W / 4);
    let (a_e4m3, b_e4m3) = (op.imm & A_E4M3 != 0, op.imm & B_E4M3 != 0);
    let mut d = [[0; 8]; 16];
    for upper in [false, true] {
        let (a, b) = (unpack(&a, upper, a_e4m3), unpack(&b, upper, b_e4m3));
        d = multiply::<F16, D, D, W, K, W, K>(&a, &b, &d, &Dense);
    }
    D::write(ctx, op, &added::<D>(&c, &d));
    Flow::Next
}

/// Returns the sum of two matrices.
#[inline(always)]
pub(super) fn added<D: Accumulator>(c: &Sums, d: &Sums) -> Sums {
    std::array::from_fn(|i| std::array::from_fn(|n| D::add(c[i][n], d[i][n])))
}

/// Rounds two f32 numbers to f16 and packs them in one register.
pub(crate) fn pack_halves(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (a, b) = (ctx.read::<u32>(op.a), ctx.read::<u32>(op.b));
    let half = |bits: u32| {
        let half = f16::from_f32(f32::from_bits(bits));
        u32::from(if half.is_nan() { 0x7FFF } else { half.to_bits() })
    };
    let packed = std::array::from_fn(|lane| half(a[lane]) | half(b[lane]) << 16);
    ctx.write::<u32>(op.d, ctx.mask, &packed);
    Flow::Next
}

/// The e4m3 numbers as f16.
static E4M3: [u16; 256] = e4m3_table();

const fn e4m3_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (exponent, fraction) = (byte >> 3 & 15, byte & 7);
        let magnitude = if byte & 0x7F == 0x7F {
            0x7FFF
        } else if exponent != 0 {
            // Converts the exponent from bias 7 to bias 15.
            (exponent + 8) << 10 | fraction << 7
        } else if fraction != 0 {
            // Subnormal in e4m3, but normal in f16.
            let leading = 31 - (fraction as u32).leading_zeros() as usize;
            (leading + 6) << 10 | (fraction << (10 - leading) & 0x3FF)
        } else {
            0
        };
        table[byte] = (magnitude | (byte & 0x80) << 8) as u16;
        byte += 1;
    }
    table
}

/// Multiplies `M` rows of `K` numbers. `imm` is the code of the rounding mode.
#[inline(always)]
fn doubles<const M: usize, const K: usize>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let (of_a, of_b, of_c) = (M / 4, M / 4 + M * K / 32, M / 4 + M * K / 32 + K / 4);
    let a = lines::<u64, M, K>(ctx, op, of_a);
    let b = lines::<u64, 8, K>(ctx, op, of_b);
    let mut d = sums::<u64, M>(ctx, op, of_c);
    let mode = Round::from_code(op.imm);
    for i in 0..M {
        for n in 0..8 {
            let sum = (0..K).fold(f64::from_bits(d[i][n]), |sum, k| {
                fma(f64::from_bits(a[i][k]), f64::from_bits(b[n][k]), sum, mode)
            });
            d[i][n] = sum.to_bits();
        }
    }
    set_sums(ctx, op, &d);
    Flow::Next
}

/// The NaN of an invalid operation.
const NAN: u64 = 0xFFF8_0000_0000_0000;
/// The bit of a quiet NaN.
const QUIET: u64 = 1 << 51;

#[inline(always)]
fn fma(a: f64, b: f64, c: f64, mode: Round) -> f64 {
    let sum = fma_f64(a, b, c, mode);
    if sum.is_nan() { nan_of(a, b, c) } else { sum }
}

/// Selects one of several NaNs: B's comes before the sum's, and that before A's.
#[cold]
fn nan_of(a: f64, b: f64, c: f64) -> f64 {
    let first = [b, c, a].into_iter().find(|x| x.is_nan());
    f64::from_bits(first.map_or(NAN, |nan| nan.to_bits() | QUIET))
}

twice! {
    /// Returns the handler for `M` rows of `K` numbers.
    pick_doubles, doubles, [const M: usize, const K: usize], [M, K]
}

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
    pick_integers, integers, [O: Dot, const M: usize, const W: usize], [O, M, W]
}

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

/// `mma.m8n8k4` of f16: four small multiplications, one for each pair of groups of four lanes.
///
/// The instruction is from Volta. An H200 has no hardware for it, and its driver emits f32 multiply-adds. The order of
/// those is the same here.
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
