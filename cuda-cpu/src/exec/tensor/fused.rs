//! Sums of products as tensor cores compute them.
//!
//! The result differs from IEEE 754. It is known from experiments (Fasi, Higham, Mikaitis, Pranesh 2021, and later
//! work) and was confirmed on an H200 for each format here. Products are exact. The products and the accumulator are
//! aligned to their largest exponent, or to [`LEAST`], and truncated [`KEPT`] bits below it. Their sum is exact and is
//! rounded once: towards zero to f32, to nearest to f16. One such step adds all products of an instruction. The
//! exponent of a product is the sum of its factors' exponents, so the product need not be normalized.
//!
//! The sums are most of the work. They are compiled for two levels of processor, and once for all formats of a shape.

use super::accumulator::{Accumulator, Sums};
use super::parts::{Factor, Format, Parts};
#[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
use crate::lanes::simd;

/// Number of bits below the leading bit of the largest term that take part in the sum.
const KEPT: u32 = 25;

/// The exponent to which sums are aligned if all terms are smaller.
const LEAST: i32 = -133;

/// Number of columns of B.
const N: usize = 8;

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
pub(super) trait Picks<const K: usize> {
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
