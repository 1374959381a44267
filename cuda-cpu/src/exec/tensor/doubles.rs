//! `mma` of f64: a sequence of fused multiply-adds.

use super::layout::{lines, set_sums, sums};
use super::{twice, whole_warp};
use crate::exec::number::rounding::{Round, fma_f64};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

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
    pick, doubles, [const M: usize, const K: usize], [M, K]
}
