//! Decomposed floating-point numbers.

/// The exponent of zero. It is below all others, so no sum is aligned to it.
pub(super) const ZERO: i32 = -0x2000;

/// The signed significand as an integer, and the exponent of its leading bit. Subnormal numbers have the exponent of
/// the smallest normal number.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Parts {
    pub(crate) significand: i32,
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
