//! Sums of products as tensor cores make them.
//!
//! Not as IEEE 754 would have it, but known from experiments (Fasi, Higham, Mikaitis, Pranesh 2021, and those
//! after them), and confirmed on an H200 for every format here: products are exact; they and the accumulator are
//! aligned to the largest exponent among them and cut off [`KEPT`] bits below it; the sum of that is exact, and
//! rounded once: towards zero to f32, to nearest to f16. There is one such step for all products of an
//! instruction. The exponent of a product is the sum of its factors' exponents, so it need not be normalised.

use super::accumulator::{Accumulator, Sums};
use super::parts::{Factor, Parts};

/// Bits below the leading place of the largest term that take part in the sum.
const KEPT: u32 = 25;

/// Columns of B.
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
        for (n, words) in words.iter().enumerate() {
            for k in 0..K {
                let parts = F::parts(words[k / F::PER_WORD], k % F::PER_WORD);
                columns.significands[k][n] = parts.significand;
                columns.exponents[k][n] = parts.exponent;
                columns.special |= parts.special;
            }
        }
        columns
    }
}

/// Which rows of B the elements of A meet.
pub(super) trait Picks<const K: usize> {
    fn row(&self, i: usize, k: usize) -> usize;
}

/// The elements of a row of A meet the rows of B one by one.
pub(super) struct Dense;

impl<const K: usize> Picks<K> for Dense {
    #[inline(always)]
    fn row(&self, _: usize, k: usize) -> usize {
        k
    }
}

/// By row and element of A.
impl<const K: usize> Picks<K> for [[u8; K]; 16] {
    #[inline(always)]
    fn row(&self, i: usize, k: usize) -> usize {
        self[i][k].into()
    }
}

/// `a * b + c`: 16 rows of `W` words with `K` elements, 8 columns of `V` words with `L` elements.
#[inline(always)]
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
    let columns = Columns::<L>::new::<F, V>(b);
    let mut d = [[0; N]; 16];
    for i in 0..16 {
        let row = Row::<K>::new::<F>(&a[i]);
        let c_parts = c[i].map(C::parts);
        let (totals, exponents) =
            sum_row::<F, C, K, L>(&row, &columns, &c_parts, |k| picks.row(i, k));
        for n in 0..N {
            d[i][n] = D::round(totals[n], exponents[n] - KEPT as i32);
        }
        if row.special || columns.special || c_parts.iter().any(|c| c.special) {
            let row_of_b: [usize; K] = std::array::from_fn(|k| picks.row(i, k));
            specials::<F, C, D, W, K, V>(&a[i], b, &c[i], &row_of_b, &mut d[i]);
        }
    }
    d
}

/// The sums of one row, and the exponents they are aligned to.
#[inline(always)]
fn sum_row<F: Factor, C: Accumulator, const K: usize, const L: usize>(
    row: &Row<K>,
    columns: &Columns<L>,
    c: &[Parts; N],
    row_of_b: impl Fn(usize) -> usize,
) -> ([i64; N], [i32; N]) {
    let mut products = [[0; N]; K];
    let mut exponents = [[0; N]; K];
    let mut top = c.map(|c| c.exponent);
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
fn specials<F, C, D, const W: usize, const K: usize, const V: usize>(
    a: &[u32; W],
    b: &[[u32; V]; N],
    c: &[u32; N],
    row_of_b: &[usize; K],
    d: &mut [u32; N],
) where
    F: Factor,
    C: Accumulator,
    D: Accumulator,
{
    for n in 0..N {
        let products = (0..K).map(|k| {
            let row = row_of_b[k];
            F::special(a[k / F::PER_WORD], k % F::PER_WORD)
                * F::special(b[n][row / F::PER_WORD], row % F::PER_WORD)
        });
        // Finite products cannot get near the end of f64.
        let sum = products.sum::<f64>() + C::special(c[n]);
        if !sum.is_finite() {
            d[n] = D::from_special(sum);
        }
    }
}
