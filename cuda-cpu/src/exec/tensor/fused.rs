//! Sums of products as tensor cores compute them, of decomposed numbers, and the types of C and D.
//!
//! The result differs from IEEE 754. It is known from experiments (Fasi, Higham, Mikaitis, Pranesh 2021, and later
//! work) and was confirmed on an H200 for each format here. Products are exact. The products and the accumulator are
//! aligned to their largest exponent, or to [`LEAST`], and truncated [`KEPT`] bits below it. Their sum is exact and is
//! rounded once: towards zero to f32, to nearest to f16. One such step adds all products of an instruction. The
//! exponent of a product is the sum of its factors' exponents, so the product need not be normalized.
//!
//! The sums are most of the work. They are compiled for two levels of processor, and once for all formats of a shape.

use half::f16;

use super::layout;
use crate::exec::number::float::{NAN32, Scalar};
use crate::exec::number::rounding::Round;
use crate::machine::code::Op;
use crate::machine::ctx::Ctx;

#[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
use crate::lanes::simd;

/// Number of bits below the leading bit of the largest term that take part in the sum.
const KEPT: u32 = 25;

/// The exponent to which sums are aligned if all terms are smaller.
const LEAST: i32 = -133;

/// Number of columns of B.
const N: usize = 8;

/// Returns `a * b + c`. A has 16 rows of `W` words with `K` elements, and B has 8 columns of `V` words with `L`
/// elements.
pub(super) fn multiply<F, C, D, const W: usize, const K: usize, const V: usize, const L: usize>(
    a: &[[u32; W]; 16],
    b: &[[u32; V]; N],
    c: &Sums,
    picks: &impl Picks<K>,
) -> Sums
where
    F: Factor,
    C: Accumulator,
    D: Accumulator,
{
    let formats = Formats { factors: F::FORMAT, sums: C::FORMAT };
    let (a, b) = (elements::<F, 16, W, K>(a), elements::<F, 8, V, L>(b));
    let exact = exact_sums(&a, &b, c, picks, formats);
    let mut d = rounded::<D>(&exact);
    for i in (0..16).filter(|&i| exact.special[i]) {
        let row_of_b: [usize; K] = std::array::from_fn(|k| picks.row(i, k));
        for (n, d) in d[i].iter_mut().enumerate() {
            let sum = special_sum(&a[i], &b[n], &row_of_b, c[i][n], formats);
            if !sum.is_finite() {
                *d = D::from_special(sum);
            }
        }
    }
    d
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
    fn new(elements: &[u32; K], format: Format) -> Self {
        let mut row = Self { significands: [0; K], exponents: [0; K], special: false };
        for (k, &element) in elements.iter().enumerate() {
            let parts = format.parts(element);
            row.significands[k] = parts.significand;
            row.exponents[k] = parts.exponent;
            row.special |= parts.special;
        }
        row
    }
}

impl<const K: usize> Columns<K> {
    #[inline(always)]
    fn new(elements: &[[u32; K]; N], format: Format) -> Self {
        let (significands, exponents) = ([[0; N]; K], [[0; N]; K]);
        let mut columns = Self { significands, exponents, special: false };
        for (n, column) in elements.iter().enumerate() {
            for (k, &element) in column.iter().enumerate() {
                let parts = format.parts(element);
                columns.significands[k][n] = parts.significand;
                columns.exponents[k][n] = parts.exponent;
                columns.special |= parts.special;
            }
        }
        columns
    }
}

/// Maps the elements of A to the rows of B by which they are multiplied.
pub(crate) trait Picks<const K: usize> {
    fn row(&self, i: usize, k: usize) -> usize;
}

/// Element k of a row of A is multiplied by row k of B.
pub(super) struct Dense;

impl<const K: usize> Picks<K> for Dense {
    #[inline(always)]
    fn row(&self, _: usize, k: usize) -> usize {
        k
    }
}

/// The row of B for each row and element of A.
impl<const K: usize> Picks<K> for [[u8; K]; 16] {
    #[inline(always)]
    fn row(&self, i: usize, k: usize) -> usize {
        self[i][k].into()
    }
}

/// Unpacks the `K` elements of each line.
#[inline(never)]
fn elements<F: Factor, const M: usize, const W: usize, const K: usize>(
    lines: &[[u32; W]; M],
) -> [[u32; K]; M] {
    let mut elements = [[0; K]; M];
    for (elements, line) in elements.iter_mut().zip(lines) {
        for (k, element) in elements.iter_mut().enumerate() {
            *element = F::bits(line[k / F::PER_WORD], k % F::PER_WORD);
        }
    }
    elements
}

/// Rounds every sum as if it were finite. Not inlined, because many handlers share it.
#[inline(never)]
fn rounded<D: Accumulator>(exact: &Exact) -> Sums {
    let mut d = [[0; N]; 16];
    for (i, d) in d.iter_mut().enumerate() {
        for (n, d) in d.iter_mut().enumerate() {
            *d = D::round(exact.totals[i][n], exact.exponents[i][n] - KEPT as i32);
        }
    }
    d
}

/// The formats of A and B, and of C.
#[derive(Clone, Copy)]
struct Formats {
    factors: Format,
    sums: Format,
}

/// The sums before rounding.
struct Exact {
    totals: [[i64; N]; 16],
    /// The exponents to which the totals are aligned.
    exponents: [[i32; N]; 16],
    /// Whether the terms of the row include an infinity or NaN.
    special: [bool; 16],
}

/// Calls [`each_row`], compiled for this processor. The results are the same.
fn exact_sums<const K: usize, const L: usize>(
    a: &[[u32; K]; 16],
    b: &[[u32; L]; N],
    c: &Sums,
    picks: &impl Picks<K>,
    formats: Formats,
) -> Exact {
    #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
    if simd::level() >= simd::Level::Avx2 {
        #[target_feature(enable = "avx2,fma")]
        fn fast<const K: usize, const L: usize>(
            a: &[[u32; K]; 16],
            b: &[[u32; L]; N],
            c: &Sums,
            picks: &impl Picks<K>,
            formats: Formats,
        ) -> Exact {
            each_row(a, b, c, picks, formats)
        }
        // SAFETY: the processor supports AVX2 and FMA.
        return unsafe { fast(a, b, c, picks, formats) };
    }
    each_row(a, b, c, picks, formats)
}

#[inline(always)]
fn each_row<const K: usize, const L: usize>(
    a: &[[u32; K]; 16],
    b: &[[u32; L]; N],
    c: &Sums,
    picks: &impl Picks<K>,
    formats: Formats,
) -> Exact {
    let columns = Columns::new(b, formats.factors);
    let mut all = Exact { totals: [[0; N]; 16], exponents: [[0; N]; 16], special: [false; 16] };
    for i in 0..16 {
        let row = Row::new(&a[i], formats.factors);
        let c = c[i].map(|bits| formats.sums.parts(bits));
        let fractions = [formats.factors.fraction, formats.sums.fraction];
        (all.totals[i], all.exponents[i]) =
            sum_row(&row, &columns, &c, |k| picks.row(i, k), fractions);
        all.special[i] = row.special || columns.special || c.iter().any(|c| c.special);
    }
    all
}

/// Returns the sums of one row, and the exponents to which they are aligned.
#[inline(always)]
fn sum_row<const K: usize, const L: usize>(
    row: &Row<K>,
    columns: &Columns<L>,
    c: &[Parts; N],
    row_of_b: impl Fn(usize) -> usize,
    [fraction, fraction_of_c]: [u32; 2],
) -> ([i64; N], [i32; N]) {
    let mut products = [[0; N]; K];
    let mut exponents = [[0; N]; K];
    let mut top = c.map(|c| c.exponent.max(LEAST));
    for k in 0..K {
        let (significands, others) =
            (&columns.significands[row_of_b(k)], &columns.exponents[row_of_b(k)]);
        for n in 0..N {
            products[k][n] = row.significands[k] * significands[n];
            exponents[k][n] = row.exponents[k] + others[n];
            top[n] = top[n].max(exponents[k][n]);
        }
    }
    let aligned = |value: i32, fraction: u32, exponent: i32, top: i32| {
        let lost = (top - exponent).min(31) as u32;
        let magnitude = (value.unsigned_abs() << (KEPT - fraction) >> lost) as i32;
        if value < 0 { -magnitude } else { magnitude }
    };
    let mut totals: [i64; N] = std::array::from_fn(|n| {
        aligned(c[n].significand, fraction_of_c, c[n].exponent, top[n]).into()
    });
    // The sum of eight products fits in 32 bits.
    for first in (0..K).step_by(8) {
        let mut sums = [0i32; N];
        for k in first..K.min(first + 8) {
            for n in 0..N {
                sums[n] += aligned(products[k][n], 2 * fraction, exponents[k][n], top[n]);
            }
        }
        for n in 0..N {
            totals[n] += i64::from(sums[n]);
        }
    }
    (totals, top)
}

/// Returns the sum of the products and an element of C if they include infinities or NaNs.
#[cold]
#[inline(never)]
fn special_sum(a: &[u32], b: &[u32], row_of_b: &[usize], c: u32, formats: Formats) -> f64 {
    let special = |bits: u32| formats.factors.special(bits);
    // Products of finite numbers are far from the limits of f64.
    let products = a.iter().zip(row_of_b).map(|(&a, &row)| special(a) * special(b[row]));
    products.sum::<f64>() + formats.sums.special(c)
}

/// The exponent of zero. It is below all others, so no sum is aligned to it.
const ZERO: i32 = -0x2000;

/// The signed significand as an integer, and the exponent of its leading bit. Subnormal numbers have the exponent of
/// the smallest normal number.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Parts {
    significand: i32,
    pub(crate) exponent: i32,
    /// Whether the number is an infinity or NaN. The other fields are then not meaningful.
    pub(crate) special: bool,
}

/// Sizes of exponent and fraction in bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    pub(super) exponent: u32,
    pub(super) fraction: u32,
}

impl Format {
    #[inline(always)]
    pub(super) fn parts(self, bits: u32) -> Parts {
        let fraction = bits & ((1 << self.fraction) - 1);
        let exponent = bits >> self.fraction & ((1 << self.exponent) - 1);
        let magnitude = fraction | u32::from(exponent != 0) << self.fraction;
        let negative = bits >> (self.exponent + self.fraction) & 1 != 0;
        let bias = (1 << (self.exponent - 1)) - 1;
        Parts {
            significand: if negative { -(magnitude as i32) } else { magnitude as i32 },
            exponent: if magnitude == 0 { ZERO } else { (exponent as i32).max(1) - bias },
            special: exponent == (1 << self.exponent) - 1,
        }
    }

    /// Returns the number as an `f64`, for sums with an infinity or a NaN. A finite number keeps its sign and stays
    /// finite. Its magnitude is not exact.
    pub(super) fn special(self, bits: u32) -> f64 {
        let Parts { significand, exponent, special } = self.parts(bits);
        match (special, bits & ((1 << self.fraction) - 1)) {
            (true, 0) => f64::INFINITY.copysign(f64::from(significand)),
            (true, _) => f64::NAN,
            _ => f64::from(significand) * f64::from(exponent).exp2(),
        }
    }
}

/// A type of the operands A and B.
pub(crate) trait Factor: 'static {
    /// Number of elements in a word.
    const PER_WORD: usize;
    const FORMAT: Format;
    /// Returns an element of a word.
    fn bits(word: u32, index: usize) -> u32;
}

macro_rules! factor {
    ($($(#[$doc:meta])* $name:ident, $e:literal, $m:literal, $per:literal, |$word:ident, $index:ident| $bits:expr;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name;
        impl Factor for $name {
            const PER_WORD: usize = $per;
            const FORMAT: Format = Format { exponent: $e, fraction: $m };
            #[inline(always)]
            fn bits($word: u32, $index: usize) -> u32 { $bits }
        }
    )* };
}

factor! {
    /// f16
    F16, 5, 10, 2, |word, index| word >> (16 * index) & 0xFFFF;
    /// bf16
    BF16, 8, 7, 2, |word, index| word >> (16 * index) & 0xFFFF;
    /// tf32: the low bits of an f32 are ignored.
    TF32, 8, 10, 1, |word, _index| word >> 13;
}

/// The elements of C or D, as bits.
pub(crate) type Sums = [[u32; 8]; 16];

/// A type of C or D.
pub(crate) trait Accumulator: 'static {
    /// Number of registers of a fragment.
    const REGISTERS: usize;
    const FORMAT: Format;
    fn read(ctx: &Ctx<'_>, op: &Op, first: usize) -> Sums;
    fn write(ctx: &mut Ctx<'_>, op: &Op, sums: &Sums);
    /// Returns `total * 2^exponent`, rounded.
    fn round(total: i64, exponent: i32) -> u32;
    /// Converts an infinity or NaN.
    fn from_special(value: f64) -> u32;
    /// Returns the sum, rounded to nearest.
    fn add(a: u32, b: u32) -> u32;
}

/// The number of smallest f32 units in 1.
const UNITS: f64 = f64::from_bits((1023 + 149) << 52);

/// f32
pub(crate) struct Single;

impl Accumulator for Single {
    const REGISTERS: usize = 4;
    const FORMAT: Format = Format { exponent: 8, fraction: 23 };
    #[inline(always)]
    fn read(ctx: &Ctx<'_>, op: &Op, first: usize) -> Sums {
        layout::sums(ctx, op, first)
    }
    #[inline(always)]
    fn write(ctx: &mut Ctx<'_>, op: &Op, sums: &Sums) {
        layout::set_sums(ctx, op, sums);
    }
    #[inline(always)]
    fn round(total: i64, exponent: i32) -> u32 {
        let value = scaled(total, exponent);
        if value.abs() >= f64::from(f32::MIN_POSITIVE) {
            // Bits that the conversion could round are cleared. A sum that is too large still becomes infinite.
            let cut = value.to_bits() & !((1 << (f64::MANTISSA_DIGITS - f32::MANTISSA_DIGITS)) - 1);
            return (f64::from_bits(cut) as f32).to_bits();
        }
        let units = (value.abs() * UNITS) as u32;
        // A zero is positive.
        if units == 0 { 0 } else { units | u32::from(total < 0) << 31 }
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
    const FORMAT: Format = Format { exponent: 5, fraction: 10 };
    #[inline(always)]
    fn read(ctx: &Ctx<'_>, op: &Op, first: usize) -> Sums {
        layout::half_sums(ctx, op, first)
    }
    #[inline(always)]
    fn write(ctx: &mut Ctx<'_>, op: &Op, sums: &Sums) {
        layout::set_half_sums(ctx, op, sums);
    }
    #[inline(always)]
    fn round(total: i64, exponent: i32) -> u32 {
        let half = f16::round_from(scaled(total, exponent), Round::Nearest);
        // A zero is positive.
        if half == f16::ZERO { 0 } else { half.to_bits().into() }
    }
    fn from_special(value: f64) -> u32 {
        u32::from(if value.is_nan() { 0x7FFF } else { f16::from_f64(value).to_bits() })
    }
    #[inline(always)]
    fn add(a: u32, b: u32) -> u32 {
        let value = |bits: u32| f16::from_bits(bits as u16).to_f32();
        // An f32 has enough precision that rounding twice gives the same result.
        let sum = f16::from_f32(value(a) + value(b));
        u32::from(if sum.is_nan() { 0x7FFF } else { sum.to_bits() })
    }
}

/// f16, widened to f32 first: C of a `wmma` with f32 results.
pub(crate) struct Widened;

impl Accumulator for Widened {
    const REGISTERS: usize = 2;
    const FORMAT: Format = Single::FORMAT;
    #[inline(always)]
    fn read(ctx: &Ctx<'_>, op: &Op, first: usize) -> Sums {
        let single = |bits: u32| f16::from_bits(bits as u16).to_f32().to_bits();
        layout::half_sums(ctx, op, first).map(|row| row.map(single))
    }
    fn write(ctx: &mut Ctx<'_>, op: &Op, sums: &Sums) {
        Single::write(ctx, op, sums);
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

/// Exact, because totals have fewer than 53 bits and exponents are in range.
#[inline(always)]
fn scaled(total: i64, exponent: i32) -> f64 {
    total as f64 * f64::from_bits(((1023 + exponent) as u64) << 52)
}
