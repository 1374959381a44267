//! `mma` of f16, bf16, tf32 and 8-bit floats.

use half::f16;

use super::accumulator::{Accumulator, Sums};
pub(crate) use super::accumulator::{Half, Single, Widened};
use super::fused::{Dense, multiply};
use super::layout::lines;
use super::parts::Factor;
pub(crate) use super::parts::{BF16, F16, TF32};
use super::whole_warp;
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
