//! Interpolation in fixed point.

/// A function's parabolas, one for each segment of its argument: `C0 + C1 x + C2 S(x)`.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    /// What all segments have in common: a rounding constant, and as how large powers of two the
    /// coefficients count.
    constant: i64,
    steps: [u32; 3],
    segments: [[i32; 3]; N],
}

impl<const N: usize> Table<N> {
    /// Segments that are left over are zero.
    pub(super) const fn new(constant: i64, steps: [u32; 3], rows: &[[i32; 3]]) -> Self {
        let mut segments = [[0; 3]; N];
        let mut i = 0;
        while i < rows.len() {
            segments[i] = rows[i];
            i += 1;
        }
        Self { constant, steps, segments }
    }

    /// The parabola of `segment` (below `N`, a power of two) at `x`, a number of 17 bits.
    #[inline(always)]
    pub(super) fn interpolate(&self, segment: u32, x: u32) -> i64 {
        let [c0, c1, c2] = self.segments[segment as usize % N];
        let product = |c: i32, x: u32| i64::from(c) * i64::from(x as i32);
        (i64::from(c0) << self.steps[0])
            + self.constant
            + product(c1, x << self.steps[1])
            + product(c2, square(x) << self.steps[2])
    }
}

/// The upper 15 bits of the square of 17 bits, of which the unit adds up no bit products below
/// column 19.
#[inline(always)]
fn square(x: u32) -> u32 {
    let (upper, lower) = (x >> 9, x & 0x1FF);
    // The upper bits' square misses that of the lowest one alone, the lower bits' is missing.
    let mut sum = (upper * upper) >> 1;
    for i in 1..8 {
        // Bit i's products with the lower bits.
        let set = ((upper << (31 - i)) as i32 >> 31) as u32;
        sum += (lower >> (9 - i)) & set;
    }
    sum
}

/// `value / 2^unit` cut off after 24 bits, as the bits of an f32. At least 0 and below 2^52.
#[inline(always)]
pub(super) fn truncated(value: i64, unit: i32) -> u32 {
    /// An f64 of this exponent has its integer in its lower bits.
    const INTEGER: u64 = 0x4330_0000_0000_0000;
    let exact = f64::from_bits(INTEGER | value as u64) - f64::from_bits(INTEGER);
    let cut = f64::from_bits(exact.to_bits() & !0x1FFF_FFFF);
    let scale = f64::from_bits(((1023 - unit) as u64) << 52);
    ((cut * scale) as f32).to_bits()
}
