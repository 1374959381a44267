//! Interpolation in fixed point.

/// A segment's parabola: `c0 + c1 x + c2 S(x)`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    c0: i64,
    c1: i32,
    c2: i32,
}

/// A function's segments; `C0` is given in steps of `2^shift` and without the rounding constant that
/// all segments have in common. What is left over is zero.
pub(super) const fn table<const N: usize>(
    shift: u32,
    constant: i64,
    rows: &[[i32; 3]],
) -> [Segment; N] {
    let mut segments = [Segment { c0: 0, c1: 0, c2: 0 }; N];
    let mut i = 0;
    while i < rows.len() {
        let [c0, c1, c2] = rows[i];
        segments[i] = Segment { c0: ((c0 as i64) << shift) + constant, c1, c2 };
        i += 1;
    }
    segments
}

/// The parabola of `segment` (below `N`, a power of two) at `x`, a number of 17 bits.
#[inline(always)]
pub(super) fn interpolate<const N: usize>(segments: &[Segment; N], segment: u32, x: u32) -> i64 {
    let Segment { c0, c1, c2 } = segments[segment as usize % N];
    c0 + i64::from(c1) * i64::from(x as i32) + i64::from(c2) * i64::from(square(x) as i32)
}

/// The upper 15 bits of the square of 17 bits, of which the unit adds up no bit products below
/// column 19.
#[inline(always)]
fn square(x: u32) -> u32 {
    let mut sum = 0;
    for i in 10..17 {
        // Twice the product of bit i with the bits below it, and with itself.
        let below = (x >> (18 - i)) & ((1 << (2 * i - 18)) - 1);
        let set = 0u32.wrapping_sub((x >> i) & 1);
        sum += (below + (1 << (2 * i - 19))) & set;
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
