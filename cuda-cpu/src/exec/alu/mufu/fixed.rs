//! Interpolation in fixed point.

/// The parabolas of a function, one for each segment of its argument: `C0 + C1 x + C2 S(x)`.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    /// Parameters of all segments: a rounding constant, and the binary exponents of the coefficients' units.
    constant: i64,
    steps: [u32; 3],
    segments: [[i32; 3]; N],
}

impl<const N: usize> Table<N> {
    /// Creates a table. Unused segments are zero.
    pub(super) const fn new(constant: i64, steps: [u32; 3], rows: &[[i32; 3]]) -> Self {
        let mut segments = [[0; 3]; N];
        let mut i = 0;
        while i < rows.len() {
            segments[i] = rows[i];
            i += 1;
        }
        Self { constant, steps, segments }
    }

    /// Evaluates the parabola of `segment` (below `N`, a power of two) at `x`, a number of 17 bits.
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

/// Returns the upper 15 bits of the square of a 17-bit number. The unit omits all bit products below column 19.
#[inline(always)]
fn square(x: u32) -> u32 {
    let (upper, lower) = (x >> 9, x & 0x1FF);
    // The square of the upper bits lacks that of the lowest bit, and the square of the lower bits is omitted.
    let mut sum = (upper * upper) >> 1;
    for i in 1..8 {
        // The products of bit i with the lower bits.
        let set = ((upper << (31 - i)) as i32 >> 31) as u32;
        sum += (lower >> (9 - i)) & set;
    }
    sum
}

/// Returns `value / 2^unit`, truncated to 24 bits, as the bits of an f32. `value` is in 0..2^52.
#[inline(always)]
pub(super) fn truncated(value: i64, unit: i32) -> u32 {
    /// An f64 with this exponent holds an integer in its low bits.
    const INTEGER: u64 = 0x4330_0000_0000_0000;
    let exact = f64::from_bits(INTEGER | value as u64) - f64::from_bits(INTEGER);
    let cut = f64::from_bits(exact.to_bits() & !0x1FFF_FFFF);
    let scale = f64::from_bits(((1023 - unit) as u64) << 52);
    ((cut * scale) as f32).to_bits()
}
