//! Sums of products as tensor cores make them.
//!
//! Not as IEEE 754 would have it, but known from experiments (Fasi, Higham, Mikaitis, Pranesh 2021, and those
//! after them), and confirmed on an H200 for every format here: products are exact; they and the accumulator are
//! aligned to the largest exponent among them and cut off [`KEPT`] bits below it; the sum of that is exact, and
//! rounded once: towards zero to f32, to nearest to f16. There is one such step for all products of an
//! instruction. The exponent of a product is the sum of its factors' exponents, so it need not be normalised.

use half::f16;

use super::layout;
use super::parts::{Factor, Parts, parts, special};
use crate::engine::ctx::Ctx;
use crate::engine::exec::float::{NAN32, Scalar};
use crate::engine::exec::rounding::Round;
use crate::engine::op::Op;

/// Bits below the leading place of the largest term that take part in the sum.
const KEPT: u32 = 25;

/// Columns of B.
const N: usize = 8;

/// What C or D may be: its elements as bits.
pub(crate) trait Accumulator: 'static {
    /// Registers of a fragment.
    const REGISTERS: usize;
    const FRACTION: u32;
    fn read(ctx: &Ctx<'_>, op: &Op, first: usize) -> [[u32; N]; 16];
    fn write(ctx: &mut Ctx<'_>, op: &Op, sums: &[[u32; N]; 16]);
    fn parts(bits: u32) -> Parts;
    fn special(bits: u32) -> f64;
    /// Rounds `total * 2^exponent`.
    fn round(total: i64, exponent: i32) -> u32;
    /// An infinity or NaN.
    fn from_special(value: f64) -> u32;
    /// The sum, rounded to nearest.
    fn add(a: u32, b: u32) -> u32;
}

/// How many of the smallest f32 make one.
const UNITS: f64 = f64::from_bits((1023 + 149) << 52);

/// f32
pub(crate) struct Single;

impl Accumulator for Single {
    const REGISTERS: usize = 4;
    const FRACTION: u32 = 23;
    #[inline(always)]
    fn read(ctx: &Ctx<'_>, op: &Op, first: usize) -> [[u32; N]; 16] {
        layout::sums(ctx, op, first)
    }
    #[inline(always)]
    fn write(ctx: &mut Ctx<'_>, op: &Op, sums: &[[u32; N]; 16]) {
        layout::set_sums(ctx, op, sums);
    }
    #[inline(always)]
    fn parts(bits: u32) -> Parts {
        parts::<8, 23>(bits)
    }
    fn special(bits: u32) -> f64 {
        special::<8, 23>(bits)
    }
    #[inline(always)]
    fn round(total: i64, exponent: i32) -> u32 {
        let value = scaled(total, exponent);
        if value.abs() >= f64::from(f32::MIN_POSITIVE) {
            // What the conversion could round away is gone. Too large a sum becomes infinite all the same.
            let cut = value.to_bits() & !((1 << (f64::MANTISSA_DIGITS - f32::MANTISSA_DIGITS)) - 1);
            return (f64::from_bits(cut) as f32).to_bits();
        }
        let units = (value.abs() * UNITS) as u32;
        units | u32::from(total < 0) << 31
    }
    fn from_special(value: f64) -> u32 {
        if value.is_nan() { NAN32 } else { (value as f32).to_bits() }
    }
    #[inline(always)]
    fn add(a: u32, b: u32) -> u32 {
        let sum = f32::from_bits(a) + f32::from_bits(b);
        if sum.is_nan() { NAN32 } else { sum.to_bits() }
    }
}

/// f16
pub(crate) struct Half;

impl Accumulator for Half {
    const REGISTERS: usize = 2;
    const FRACTION: u32 = 10;
    #[inline(always)]
    fn read(ctx: &Ctx<'_>, op: &Op, first: usize) -> [[u32; N]; 16] {
        layout::half_sums(ctx, op, first)
    }
    #[inline(always)]
    fn write(ctx: &mut Ctx<'_>, op: &Op, sums: &[[u32; N]; 16]) {
        layout::set_half_sums(ctx, op, sums);
    }
    #[inline(always)]
    fn parts(bits: u32) -> Parts {
        parts::<5, 10>(bits)
    }
    fn special(bits: u32) -> f64 {
        special::<5, 10>(bits)
    }
    #[inline(always)]
    fn round(total: i64, exponent: i32) -> u32 {
        let half = f16::round_from(scaled(total, exponent), Round::Nearest);
        u32::from(half.to_bits())
    }
    fn from_special(value: f64) -> u32 {
        u32::from(if value.is_nan() { 0x7FFF } else { f16::from_f64(value).to_bits() })
    }
    #[inline(always)]
    fn add(a: u32, b: u32) -> u32 {
        let value = |bits: u32| f16::from_bits(bits as u16).to_f32();
        // An f32 holds the sum so well that rounding twice does no harm.
        let sum = f16::from_f32(value(a) + value(b));
        u32::from(if sum.is_nan() { 0x7FFF } else { sum.to_bits() })
    }
}

/// f16, made f32 before anything else: C of a `wmma` with f32 results.
pub(crate) struct Widened;

impl Accumulator for Widened {
    const REGISTERS: usize = 2;
    const FRACTION: u32 = Single::FRACTION;
    #[inline(always)]
    fn read(ctx: &Ctx<'_>, op: &Op, first: usize) -> [[u32; N]; 16] {
        let single = |bits: u32| f16::from_bits(bits as u16).to_f32().to_bits();
        layout::half_sums(ctx, op, first).map(|row| row.map(single))
    }
    fn write(ctx: &mut Ctx<'_>, op: &Op, sums: &[[u32; N]; 16]) {
        Single::write(ctx, op, sums);
    }
    #[inline(always)]
    fn parts(bits: u32) -> Parts {
        Single::parts(bits)
    }
    fn special(bits: u32) -> f64 {
        Single::special(bits)
    }
    fn round(total: i64, exponent: i32) -> u32 {
        Single::round(total, exponent)
    }
    fn from_special(value: f64) -> u32 {
        Single::from_special(value)
    }
    fn add(a: u32, b: u32) -> u32 {
        Single::add(a, b)
    }
}

/// Exact: totals have less than 53 bits, and exponents are those of products.
#[inline(always)]
fn scaled(total: i64, exponent: i32) -> f64 {
    // Only sums of zeros have lower exponents.
    let exponent = exponent.max(-1000);
    total as f64 * f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// The elements of one row of A.
struct Row<const K: usize> {
    significands: [i32; K],
    exponents: [i32; K],
    special: bool,
}

/// The elements of B, by row.
struct Columns<const K: usize> {
    significands: [[i32; N]; K],
    exponents: [[i32; N]; K],
    special: bool,
}

impl<const K: usize> Row<K> {
    #[inline(always)]
    fn new<F: Factor>(words: &[u32]) -> Self {
        let mut row = Self { significands: [0; K], exponents: [0; K], special: false };
        for k in 0..K {
            let parts = F::parts(words[k / F::PER_WORD], k % F::PER_WORD);
            row.significands[k] = parts.significand;
            row.exponents[k] = parts.exponent;
            row.special |= parts.special;
        }
        row
    }
}

impl<const K: usize> Columns<K> {
    #[inline(always)]
    fn new<F: Factor, const W: usize>(words: &[[u32; W]; N]) -> Self {
        let (significands, exponents) = ([[0; N]; K], [[0; N]; K]);
        let mut columns = Self { significands, exponents, special: false };
        for n in 0..N {
            for k in 0..K {
                let parts = F::parts(words[n][k / F::PER_WORD], k % F::PER_WORD);
                columns.significands[k][n] = parts.significand;
                columns.exponents[k][n] = parts.exponent;
                columns.special |= parts.special;
            }
        }
        columns
    }
}

/// `a * b + c`: 16 rows of `W` words, 8 columns of `W` words, `K` products to an element.
#[inline(always)]
pub(super) fn multiply<F, C, D, const W: usize, const K: usize>(
    a: &[[u32; W]; 16],
    b: &[[u32; W]; N],
    c: &[[u32; N]; 16],
) -> [[u32; N]; 16]
where
    F: Factor,
    C: Accumulator,
    D: Accumulator,
{
    let columns = Columns::<K>::new::<F, W>(b);
    let mut d = [[0; N]; 16];
    for i in 0..16 {
        let row = Row::<K>::new::<F>(&a[i]);
        let c_parts = c[i].map(C::parts);
        let (totals, exponents) = sum_row::<F, C, K>(&row, &columns, &c_parts);
        for n in 0..N {
            d[i][n] = D::round(totals[n], exponents[n] - KEPT as i32);
        }
        if row.special || columns.special || c_parts.iter().any(|c| c.special) {
            specials::<F, C, D, W, K>(&a[i], b, &c[i], &mut d[i]);
        }
    }
    d
}

/// The sums of one row, and the exponents they are aligned to.
#[inline(always)]
fn sum_row<F: Factor, C: Accumulator, const K: usize>(
    row: &Row<K>,
    columns: &Columns<K>,
    c: &[Parts; N],
) -> ([i64; N], [i32; N]) {
    let mut products = [[0; N]; K];
    let mut exponents = [[0; N]; K];
    let mut top = c.map(|c| c.exponent);
    for k in 0..K {
        for n in 0..N {
            products[k][n] = row.significands[k] * columns.significands[k][n];
            exponents[k][n] = row.exponents[k] + columns.exponents[k][n];
            top[n] = top[n].max(exponents[k][n]);
        }
    }
    let aligned = |value: i32, fraction: u32, exponent: i32, top: i32| {
        let lost = (top - exponent).min(31) as u32;
        let magnitude = (value.unsigned_abs() << (KEPT - fraction) >> lost) as i32;
        if value < 0 { -magnitude } else { magnitude }
    };
    let mut totals: [i64; N] = std::array::from_fn(|n| {
        aligned(c[n].significand, C::FRACTION, c[n].exponent, top[n]).into()
    });
    // Eight products fit into 32 bits.
    for first in (0..K).step_by(8) {
        let mut sums = [0i32; N];
        for k in first..K.min(first + 8) {
            for n in 0..N {
                sums[n] += aligned(products[k][n], 2 * F::FRACTION, exponents[k][n], top[n]);
            }
        }
        for n in 0..N {
            totals[n] += i64::from(sums[n]);
        }
    }
    (totals, top)
}

/// Puts the results in place that infinities and NaNs have to do with.
#[cold]
#[inline(never)]
fn specials<F, C, D, const W: usize, const K: usize>(
    a: &[u32; W],
    b: &[[u32; W]; N],
    c: &[u32; N],
    d: &mut [u32; N],
) where
    F: Factor,
    C: Accumulator,
    D: Accumulator,
{
    for n in 0..N {
        let products = (0..K).map(|k| {
            let (word, index) = (k / F::PER_WORD, k % F::PER_WORD);
            F::special(a[word], index) * F::special(b[n][word], index)
        });
        // Finite products cannot get near the end of f64.
        let sum = products.sum::<f64>() + C::special(c[n]);
        if !sum.is_finite() {
            d[n] = D::from_special(sum);
        }
    }
}
