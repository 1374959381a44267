//! Operations of the floating-point types.

use half::{bf16, f16};

use super::lane::{Lane, Pair, Two};
use super::rounding::{Round, f64_to_f32, fma_f32};

/// A floating-point type, or two packed halves.
pub(crate) trait Float: Lane {
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    /// Fused multiply-add with a single rounding.
    fn fma(self, b: Self, c: Self) -> Self;
    /// Multiplication with `.ftz`. The operands are already flushed.
    #[inline(always)]
    fn mul_ftz(self, b: Self) -> Self {
        self.mul(b).flush()
    }
    #[inline(always)]
    fn fma_ftz(self, b: Self, c: Self) -> Self {
        self.fma(b, c).flush()
    }
    fn min(self, b: Self) -> Self;
    fn max(self, b: Self) -> Self;
    /// Returns the minimum, or NaN if an operand is NaN.
    fn min_nan(self, b: Self) -> Self;
    fn max_nan(self, b: Self) -> Self;
    fn neg(self) -> Self;
    /// The `neg` instruction. A NaN stays unchanged.
    fn negated(self) -> Self {
        self.neg()
    }
    fn abs(self) -> Self;
    /// Flushes denormals to zero with the same sign.
    fn flush(self) -> Self;
    /// Clamps to 0..=1. NaN becomes 0.
    fn saturate(self) -> Self;
    /// Replaces a NaN by the canonical one.
    fn canonical(self) -> Self;
    /// Returns its magnitude with the sign of `sign`.
    fn with_sign_of(self, sign: Self) -> Self;
}

/// A single floating-point number.
pub(crate) trait Scalar: Float + PartialOrd {
    /// Creates a NaN with the upper payload bits of another one.
    fn payload(nan: f64) -> Self;
    fn to_f64(self) -> f64;
    /// Rounds once in the given mode.
    fn round_from(x: f64, mode: Round) -> Self;
}

macro_rules! extremes {
    () => {
        #[inline(always)]
        fn min(self, b: Self) -> Self {
            let equal = Self::from_bits(self.to_bits() | b.to_bits());
            let less = if self < b || b.is_nan() { self } else { b };
            (if self == b { equal } else { less }).canonical()
        }
        #[inline(always)]
        fn max(self, b: Self) -> Self {
            let equal = Self::from_bits(self.to_bits() & b.to_bits());
            let more = if self > b || b.is_nan() { self } else { b };
            (if self == b { equal } else { more }).canonical()
        }
        #[inline(always)]
        fn min_nan(self, b: Self) -> Self {
            let r = Float::min(self, b);
            (if self.is_nan() || b.is_nan() { Self::NAN } else { r }).canonical()
        }
        #[inline(always)]
        fn max_nan(self, b: Self) -> Self {
            let r = Float::max(self, b);
            (if self.is_nan() || b.is_nan() { Self::NAN } else { r }).canonical()
        }
    };
}

/// Returns a quiet NaN with the same payload.
macro_rules! quieted {
    ($x:expr, $exponent:expr) => {
        Self::from_bits($x.to_bits() | ($exponent >> 1 & !$exponent))
    };
}

macro_rules! native {
    ($ty:ty, $exponent:expr, $canonical:expr, { $($more:tt)* }) => {
        impl Float for $ty {
            #[inline(always)]
            fn add(self, b: Self) -> Self {
                self + b
            }
            #[inline(always)]
            fn sub(self, b: Self) -> Self {
                self - b
            }
            #[inline(always)]
            fn mul(self, b: Self) -> Self {
                self * b
            }
            $($more)*
            extremes!();
            #[inline(always)]
            fn neg(self) -> Self {
                -self
            }
            #[inline(always)]
            fn negated(self) -> Self {
                if self.is_nan() { quieted!(self, $exponent) } else { -self }
            }
            #[inline(always)]
            fn abs(self) -> Self {
                // A NaN keeps its sign.
                if self.is_nan() { quieted!(self, $exponent) } else { <$ty>::abs(self) }
            }
            #[inline(always)]
            fn flush(self) -> Self {
                let bits = self.to_bits();
                let sign = bits & !(<$ty>::MAX.to_bits() | $exponent);
                Self::from_bits(if bits & $exponent == 0 { sign } else { bits })
            }
            #[inline(always)]
            fn saturate(self) -> Self {
                // NaN fails both comparisons.
                let low = if self > 0.0 { self } else { 0.0 };
                if low > 1.0 { 1.0 } else { low }
            }
            #[inline(always)]
            fn canonical(self) -> Self {
                $canonical(self)
            }
            #[inline(always)]
            fn with_sign_of(self, sign: Self) -> Self {
                self.copysign(sign)
            }
        }
    };
}

native!(f32, 0x7F80_0000, canonical_f32, {
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        self.mul_add(b, c)
    }
    #[inline(always)]
    fn mul_ftz(self, b: Self) -> Self {
        flush_nearest(self * b, (self * FLUSH_SCALE) * b)
    }
    #[inline(always)]
    fn fma_ftz(self, b: Self, c: Self) -> Self {
        flush_nearest(self.mul_add(b, c), (self * FLUSH_SCALE).mul_add(b, c * FLUSH_SCALE))
    }
});
native!(f64, 0x7FF0_0000_0000_0000, std::convert::identity, {
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        fma_nan(self, b, c, self.mul_add(b, c))
    }
});

impl Scalar for f32 {
    #[inline(always)]
    fn payload(nan: f64) -> Self {
        nan as Self
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn round_from(x: f64, mode: Round) -> Self {
        f64_to_f32(x, 0.0, mode)
    }
}

impl Scalar for f64 {
    #[inline(always)]
    fn payload(nan: f64) -> Self {
        nan
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn round_from(x: f64, _: Round) -> Self {
        x
    }
}

macro_rules! half {
    ($ty:ty) => {
        impl Float for $ty {
            #[inline(always)]
            fn add(self, b: Self) -> Self {
                // An f32 has more than twice as many bits plus two, so rounding twice gives the same result.
                Self::from_f32(self.to_f32() + b.to_f32())
            }
            #[inline(always)]
            fn sub(self, b: Self) -> Self {
                Self::from_f32(self.to_f32() - b.to_f32())
            }
            #[inline(always)]
            fn mul(self, b: Self) -> Self {
                Self::from_f32(self.to_f32() * b.to_f32())
            }
            #[inline(always)]
            fn fma(self, b: Self, c: Self) -> Self {
                Self::from_f32(fma_f32(self.to_f32(), b.to_f32(), c.to_f32(), Round::Odd))
            }
            extremes!();
            #[inline(always)]
            fn neg(self) -> Self {
                Self::from_bits(self.to_bits() ^ 0x8000)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                Self::from_bits(self.to_bits() & 0x7FFF)
            }
            #[inline(always)]
            fn flush(self) -> Self {
                if self.is_normal() || !self.is_finite() {
                    return self;
                }
                Self::from_bits(self.to_bits() & 0x8000)
            }
            #[inline(always)]
            fn saturate(self) -> Self {
                Self::from_f32(self.to_f32().saturate())
            }
            #[inline(always)]
            fn canonical(self) -> Self {
                if self.is_nan() { Self::from_bits(0x7FFF) } else { self }
            }
            #[inline(always)]
            fn with_sign_of(self, sign: Self) -> Self {
                Self::from_bits((self.to_bits() & 0x7FFF) | (sign.to_bits() & 0x8000))
            }
        }

        impl Scalar for $ty {
            #[inline(always)]
            fn payload(nan: f64) -> Self {
                Self::from_f32(nan as f32)
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self.to_f32())
            }
            #[inline(always)]
            fn round_from(x: f64, mode: Round) -> Self {
                if x.is_nan() {
                    return Self::from_bits(0x7FFF);
                }
                let nearest = Self::from_f32(f64_to_f32(x, 0.0, Round::Odd));
                let lost = if x.is_infinite() { 0.0 } else { x - nearest.to_f64() };
                step(nearest, lost, mode)
            }
        }
    };
}

half!(f16);
half!(bf16);

/// Moves a result by one unit if the rounding mode requires it: the 16-bit counterpart of `step_f32`.
fn step<T: Scalar<Raw = u32>>(nearest: T, lost: f64, mode: Round) -> T {
    let bits = nearest.to_raw();
    let negative = bits & 0x8000 != 0;
    let away = T::from_raw(bits + 1);
    let towards = T::from_raw(bits.wrapping_sub(1) & 0xFFFF);
    let zero = bits & 0x7FFF == 0;
    match (mode, lost > 0.0, lost < 0.0) {
        (Round::Zero, true, _) if negative && !zero => towards,
        (Round::Zero, _, true) if !negative && !zero => towards,
        (Round::Up, true, _) if zero => T::from_raw(1),
        (Round::Up, true, _) => {
            if negative {
                towards
            } else {
                away
            }
        }
        (Round::Down, _, true) if zero => T::from_raw(0x8001),
        (Round::Down, _, true) => {
            if negative {
                away
            } else {
                towards
            }
        }
        _ => nearest,
    }
}

macro_rules! both {
    ($($name:ident($($other:ident),*);)*) => { $(
        #[inline(always)]
        fn $name(self $(, $other: Self)*) -> Self {
            Self(Float::$name(self.0 $(, $other.0)*), Float::$name(self.1 $(, $other.1)*))
        }
    )* };
}

macro_rules! all {
    () => {
        both! {
            add(b);
            sub(b);
            mul(b);
            mul_ftz(b);
            fma(b, c);
            fma_ftz(b, c);
            min(b);
            max(b);
            min_nan(b);
            max_nan(b);
            neg();
            negated();
            abs();
            flush();
            saturate();
            canonical();
            with_sign_of(sign);
        }
    };
}

impl<T: Float<Raw = u32>> Float for Two<T> {
    all!();
}

impl Float for Pair {
    all!();
}

/// The canonical NaN of f32 results.
pub(crate) const NAN32: u32 = 0x7FFF_FFFF;

/// Replaces a NaN by the canonical one. Tests the bits, because LLVM folds a vector `x.sqrt().is_nan()` to `false`
/// (rustc 1.95).
#[inline(always)]
fn canonical_f32(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7FFF_FFFF > f32::INFINITY.to_bits() { NAN32 } else { bits })
}

/// Returns the result of an f64 `fma` with a GPU's NaN. The first NaN of a factor, the addend and the other factor is
/// taken. The assembler decides which factor comes first: both orders were seen for the same PTX among other
/// instructions.
#[inline(always)]
pub(in crate::exec) fn fma_nan(a: f64, b: f64, c: f64, result: f64) -> f64 {
    let quiet = |x: f64, otherwise: f64| {
        if x.is_nan() { f64::from_bits(x.to_bits() | 1 << 51) } else { otherwise }
    };
    quiet(a, quiet(c, quiet(b, result)))
}

/// A factor that makes these results normal.
const FLUSH_SCALE: f32 = 16_777_216.0;

/// The largest number below the normal f32 numbers with the same precision.
const BELOW: f64 = f32::MIN_POSITIVE as f64 * (1.0 - 1.0 / 16_777_216.0);

/// Flushes a result rounded to nearest (`.ftz`), also just below the normal numbers.
///
/// A GPU flushes a result that is below the normal numbers when it is rounded to the precision of a normal number.
/// Rounding as a denormal has a bit less of precision and may round such a result up to the smallest normal number.
///
/// `scaled` is the same result with operands multiplied by [`FLUSH_SCALE`]. If that
/// overflows, the result is not tiny.
#[inline(always)]
fn flush_nearest(result: f32, scaled: f32) -> f32 {
    let tiny =
        (result.abs() <= f32::MIN_POSITIVE) & (scaled.abs() < f32::MIN_POSITIVE * FLUSH_SCALE);
    let bits = result.to_bits();
    f32::from_bits(if tiny { bits & 0x8000_0000 } else { bits })
}

/// Flushes a result of directed rounding. The exact value is `x` plus an infinitesimal with the sign of `beyond`.
/// Results that are denormal are left unchanged.
#[inline(always)]
pub(in crate::exec) fn flush_directed(result: f32, x: f64, beyond: f64) -> f32 {
    let away = if x > 0.0 { beyond > 0.0 } else { beyond < 0.0 };
    let tiny = (x.abs() < BELOW) | ((x.abs() == BELOW) & !away);
    let bits = result.to_bits();
    f32::from_bits(if tiny { bits & 0x8000_0000 } else { bits })
}
