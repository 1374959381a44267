//! `cvt`: conversions between the types in `number`. `decode::convert` selects the handlers.

use std::marker::PhantomData;

use half::{bf16, f16};

use crate::exec::map::{Binary, Ternary, Unary};
use crate::exec::number::float::{Float, NAN32, Scalar};
use crate::exec::number::int::Int;
use crate::exec::number::lane::{Kind, Lane, Two};
use crate::exec::number::narrow::{Format, unless};
use crate::exec::number::rounding::{Round, f64_to_f32, rounds_to_denormal, step_f64};
use crate::lanes::simd::Level;

/// `imm` bits. The code of the rounding mode is above them.
pub(crate) const FTZ: u64 = 1;
pub(crate) const SAT: u64 = 2;
pub(crate) const RELU: u64 = 4;
/// Rounds to an integral value, as in float-to-float conversions with `.rni`.
pub(crate) const INTEGRAL: u64 = 8;
/// Values that are too large become the largest finite number.
pub(crate) const SATFINITE: u64 = 16;
pub(crate) const ROUND: u32 = 5;

/// Returns whether the type is f16 or bf16.
const fn is_half<F: Scalar>() -> bool {
    matches!(F::KIND, Kind::W32)
}

/// Fields of `imm` of [`ClampInt`]: from bit `TARGET`, the number of value bits of the target; then whether it is
/// signed.
pub(crate) const TARGET: u32 = 16;
pub(crate) const TARGET_SIGNED: u64 = 1 << 24;

/// `cvt` between integers.
pub(crate) struct IntToInt<A, D>(PhantomData<(A, D)>);
/// `cvt.sat` between integers, to a register of `R`. The target type is in `imm`.
pub(crate) struct ClampInt<A, R>(PhantomData<(A, R)>);
/// `cvt` from a floating-point type to an integer.
pub(crate) struct FloatToInt<A, D>(PhantomData<(A, D)>);
/// `cvt` between floating-point types.
pub(crate) struct FloatToFloat<A, D>(PhantomData<(A, D)>);

impl<A: Int, D: Int> Unary for IntToInt<A, D> {
    type A = A;
    type D = D;
    // These conversions are common, and the decoder needs few of them.
    const TOP: Level = Level::Avx512;
    #[inline(always)]
    fn apply(a: A, _imm: u64) -> D {
        D::from_bits(a.bits())
    }
}

impl<A: Int, R: Int> Unary for ClampInt<A, R> {
    type A = A;
    type D = R;
    const TOP: Level = Level::Base;
    #[inline(always)]
    fn apply(a: A, imm: u64) -> R {
        let max = u64::MAX >> (64 - (imm >> TARGET & 0xFF));
        if A::BITS == 64 && !A::SIGNED {
            return R::from_bits(a.bits().min(max));
        }
        let min = if imm & TARGET_SIGNED != 0 { !max as i64 } else { 0 };
        // Every other source fits in i64.
        R::from_bits((a.bits() as i64).max(min).min(max.min(i64::MAX as u64) as i64) as u64)
    }
}

impl<A: Scalar, D: Int> Unary for FloatToInt<A, D> {
    type A = A;
    type D = D;
    const TOP: Level = match (D::BITS, A::KIND) {
        (64, _) | (_, Kind::W32) | (8 | 16, Kind::F64) => Level::Base,
        (8 | 16, _) => Level::Avx2,
        _ => Level::Avx512,
    };
    #[inline(always)]
    fn apply(a: A, imm: u64) -> D {
        let a = if imm & FTZ != 0 { a.flush() } else { a };
        // A NaN in f64, or converted to 64 bits, becomes the highest bit. Otherwise it becomes 0.
        let wide = D::BITS == 64 || A::KIND == Kind::F64;
        if a.to_f64().is_nan() && wide {
            return D::from_bits(1 << (D::BITS - 1));
        }
        float_to_int(a.to_f64(), imm >> ROUND)
    }
}

impl<A: Scalar, D: Scalar> Unary for FloatToFloat<A, D> {
    type A = A;
    type D = D;
    const TOP: Level = if is_half::<A>() || is_half::<D>() { Level::Base } else { Level::Avx512 };
    #[inline(always)]
    fn apply(a: A, imm: u64) -> D {
        // Flushing is a separate operation with a canonical NaN.
        let a = if imm & FTZ != 0 { a.flush().canonical() } else { a };
        let mode = imm >> ROUND;
        let x = a.to_f64();
        if x.is_nan() && imm & SAT == 0 && keeps_nan::<A, D>() {
            return D::payload(x);
        }
        let r = if imm & INTEGRAL != 0 {
            D::round_from(integral(x, mode), Round::Nearest)
        } else {
            D::round_from(x, Round::from_code(mode))
        };
        finish(r, imm)
    }
}

/// `cvt.f32.f32`: copies the bits, also of a NaN.
pub(crate) struct Same;

impl Unary for Same {
    type A = f32;
    type D = f32;
    #[inline(always)]
    fn apply(a: f32, _imm: u64) -> f32 {
        a
    }
}

/// `cvt` from f64 to f32 with `.ftz`.
pub(crate) struct DoubleToSingle;

impl Unary for DoubleToSingle {
    type A = f64;
    type D = f32;
    #[inline(always)]
    fn apply(a: f64, imm: u64) -> f32 {
        let mode = Round::from_code(imm >> ROUND);
        let r = f64_to_f32(a, 0.0, mode);
        let r = if rounds_to_denormal(a, mode) { r * 0.0 } else { r };
        if imm & SAT != 0 { r.saturate() } else { r }
    }
}

/// `cvt.f32.bf16`: moves the bits to the upper half, also of a NaN.
pub(crate) struct ShiftUp;

impl Unary for ShiftUp {
    type A = u16;
    type D = f32;
    const TOP: Level = Level::Avx512;
    #[inline(always)]
    fn apply(a: u16, _imm: u64) -> f32 {
        f32::from_bits(u32::from(a) << 16)
    }
}

/// Returns whether the conversion keeps the upper payload bits of a NaN. Others make it canonical.
#[inline(always)]
fn keeps_nan<A: Scalar, D: Scalar>() -> bool {
    A::KIND == Kind::F64 && D::KIND != Kind::F64
}

#[inline(always)]
fn finish<D: Float>(r: D, imm: u64) -> D {
    let r = if imm & FTZ != 0 { r.flush() } else { r };
    let r = if imm & SAT != 0 { r.saturate() } else { r };
    r.canonical()
}

#[inline(always)]
fn integral(x: f64, mode: u64) -> f64 {
    match mode {
        0 => x.round_ties_even(),
        1 => x.trunc(),
        2 => x.floor(),
        _ => x.ceil(),
    }
}

/// Converts to an integer. Values out of range are clamped, and NaN becomes 0.
#[inline(always)]
fn float_to_int<D: Int>(x: f64, mode: u64) -> D {
    if x.is_nan() {
        return D::default();
    }
    // `as` truncates the fraction.
    let x = if mode == 1 { x } else { integral(x, mode) };
    if D::BITS == 64 {
        // Saturates at the bounds of 128 bits, which are far beyond those of `D`.
        return D::clamp_i128(x as i128);
    }
    D::clamp_i64(x as i64)
}

/// `cvt` from an integer to a floating-point type.
pub(crate) struct IntToFloat<A, D>(PhantomData<(A, D)>);

impl<A: Int, D: FromInt> Unary for IntToFloat<A, D> {
    type A = A;
    type D = D;
    const TOP: Level = if A::BITS == 64 || is_half::<D>() { Level::Base } else { A::TOP };
    #[inline(always)]
    fn apply(a: A, imm: u64) -> D {
        let mode = Round::from_code(imm >> ROUND);
        let r = if A::BITS < 64 {
            D::from_small(a.bits() as i64, mode)
        } else {
            D::from_wide(a.to_i128(), mode)
        };
        if imm & SAT != 0 { r.saturate() } else { r }
    }
}

/// Types to which integers are converted.
trait FromInt: Scalar {
    fn from_small(a: i64, mode: Round) -> Self;
    fn from_wide(a: i128, mode: Round) -> Self;
}

macro_rules! from_int {
    ($ty:ty, $small:expr) => {
        impl FromInt for $ty {
            #[inline(always)]
            fn from_small(a: i64, mode: Round) -> Self {
                $small(a, mode)
            }
            #[inline(always)]
            fn from_wide(a: i128, mode: Round) -> Self {
                // Odd rounding to f64 keeps the information that the second rounding needs.
                let nearest = a as f64;
                let lost = (a - nearest as i128) as f64;
                <$ty>::round_from(step_f64(nearest, lost, Round::Odd), mode)
            }
        }
    };
}

// An f64 represents every integer of up to 32 bits.
from_int!(f16, |a, mode| Self::round_from(a as f64, mode));
from_int!(bf16, |a, mode| Self::round_from(a as f64, mode));

impl FromInt for f32 {
    #[inline(always)]
    fn from_small(a: i64, mode: Round) -> Self {
        if mode == Round::Nearest { a as Self } else { f64_to_f32(a as f64, 0.0, mode) }
    }
    #[inline(always)]
    fn from_wide(a: i128, mode: Round) -> Self {
        if mode == Round::Nearest {
            return a as Self;
        }
        let nearest = a as f64;
        let lost = (a - nearest as i128) as f64;
        f64_to_f32(nearest, lost, mode)
    }
}

impl FromInt for f64 {
    #[inline(always)]
    fn from_small(a: i64, _: Round) -> Self {
        a as Self
    }
    #[inline(always)]
    fn from_wide(a: i128, mode: Round) -> Self {
        let nearest = a as f64;
        step_f64(nearest, (a - nearest as i128) as f64, mode)
    }
}

/// A half and the format of its bits.
pub(crate) trait Half: Float<Raw = u32> {
    const FORMAT: Format;
    /// Whether `.ftz` flushes f32 denormals in conversions to this type.
    const FLUSHED: bool;
}

impl Half for f16 {
    const FORMAT: Format = Format::F16;
    const FLUSHED: bool = false;
}

impl Half for bf16 {
    const FORMAT: Format = Format::BF16;
    const FLUSHED: bool = true;
}

/// Types from which a half is converted with a single rounding.
pub(crate) trait Single: Lane {
    /// Returns the value as the bits of an f32.
    fn single(self) -> u32;
}

impl Single for f32 {
    #[inline(always)]
    fn single(self) -> u32 {
        self.to_bits()
    }
}

impl<H: Half> Single for H {
    #[inline(always)]
    fn single(self) -> u32 {
        H::FORMAT.widen(self.to_raw())
    }
}

/// Converts the bits of an f32 to another format, with the modifiers in `imm`.
#[inline(always)]
fn narrowed(x: u32, format: Format, imm: u64) -> u32 {
    let r = format.round(x, Round::from_code(imm >> ROUND), imm & SATFINITE != 0);
    // `.relu` applies to negative numbers and -0, not to NaNs.
    unless(r, (imm & RELU != 0) & (0x8000_0000..=0xFF80_0000).contains(&x), 0)
}

/// Conversion from f32 or a half to a half.
pub(crate) struct ToHalf<A, H>(PhantomData<(A, H)>);

impl<A: Single, H: Half> Unary for ToHalf<A, H> {
    type A = A;
    type D = H;
    #[inline(always)]
    fn apply(a: A, imm: u64) -> H {
        let x = f32::from_bits(a.single());
        let x = if imm & FTZ != 0 && H::FLUSHED { x.flush() } else { x };
        // Clamping before rounding has the same result.
        let x = if imm & SAT != 0 { x.saturate() } else { x };
        H::from_raw(narrowed(x.to_bits(), H::FORMAT, imm))
    }
}

/// `cvt.f32.f16`.
pub(crate) struct Widen;

impl Unary for Widen {
    type A = f16;
    type D = f32;
    #[inline(always)]
    fn apply(a: f16, imm: u64) -> f32 {
        let x = f32::from_bits(a.single());
        if imm & SAT != 0 { x.saturate() } else { x }
    }
}

/// `cvt.rn.f16x2.f32 d, a, b`: converts two numbers. The first one becomes the upper half.
pub(crate) struct ToHalves<H>(PhantomData<H>);

impl<H: Half> Binary for ToHalves<H> {
    type A = f32;
    type B = f32;
    type D = Two<H>;
    #[inline(always)]
    fn apply(a: f32, b: f32, imm: u64) -> Two<H> {
        let one = |x: f32| H::from_raw(narrowed(x.to_bits(), H::FORMAT, imm));
        Two(one(b), one(a))
    }
}

pub(crate) const E4M3: u64 = 0;
pub(crate) const E5M2: u64 = 1;

const fn byte(format: u64) -> Format {
    if format == E4M3 { Format::E4M3 } else { Format::E5M2 }
}

/// Conversion of two numbers to two bytes. The first operand, or the upper half, becomes the upper byte.
pub(crate) struct ToBytes<const FORMAT: u64>;

impl<const FORMAT: u64> Binary for ToBytes<FORMAT> {
    type A = f32;
    type B = f32;
    type D = u16;
    #[inline(always)]
    fn apply(a: f32, b: f32, imm: u64) -> u16 {
        let one = |x: f32| narrowed(x.to_bits(), byte(FORMAT), imm) as u16;
        one(a) << 8 | one(b)
    }
}

impl<const FORMAT: u64> Unary for ToBytes<FORMAT> {
    type A = Two<f16>;
    type D = u16;
    #[inline(always)]
    fn apply(a: Two<f16>, imm: u64) -> u16 {
        let one = |x: f16| narrowed(x.single(), byte(FORMAT), imm) as u16;
        one(a.1) << 8 | one(a.0)
    }
}

/// Conversion of two bytes to two halves.
pub(crate) struct FromBytes<const FORMAT: u64>;

impl<const FORMAT: u64> Unary for FromBytes<FORMAT> {
    type A = u16;
    type D = Two<f16>;
    #[inline(always)]
    fn apply(a: u16, imm: u64) -> Two<f16> {
        let one = |x: u32| f16::from_raw(narrowed(byte(FORMAT).widen(x), Format::F16, imm));
        Two(one(u32::from(a) & 0xFF), one(u32::from(a) >> 8))
    }
}

/// Conversion to tf32, an f32 with 10 bits of fraction: a single rounding, or `rna` as compilers emit it.
pub(crate) struct ToTf32<const AWAY: bool>;

impl<const AWAY: bool> Unary for ToTf32<AWAY> {
    type A = f32;
    type D = f32;
    const TOP: Level = Level::Avx2;
    #[inline(always)]
    fn apply(a: f32, imm: u64) -> f32 {
        const DROPPED: u32 = 0x1FFF;
        let x = a.to_bits();
        let magnitude = x & 0x7FFF_FFFF;
        let finite = magnitude < 0x7F80_0000;
        if AWAY {
            let r = if finite { x + DROPPED.div_ceil(2) } else { x } & !DROPPED;
            let large = r & 0x7FFF_FFFF >= 0x7F80_0000;
            return f32::from_bits(if imm & SATFINITE != 0 && large { r - DROPPED - 1 } else { r });
        }
        let extra = if imm >> ROUND == 0 { (DROPPED >> 1) + (x >> 13 & 1) } else { 0 };
        let r = if finite { (x + extra) & !DROPPED } else { x };
        let r = if imm & RELU != 0 && x >> 31 != 0 { 0 } else { r };
        f32::from_bits(if a.is_nan() { NAN32 & !DROPPED } else { r })
    }
}

/// `cvt.pack.sat`: clamps two integers to `BITS` bits each and places them below the low bits of the third operand.
pub(crate) struct PackIntegers<const BITS: u32, const SIGNED: bool>;

impl<const BITS: u32, const SIGNED: bool> Ternary for PackIntegers<BITS, SIGNED> {
    type A = i32;
    type B = i32;
    type C = u32;
    type D = u32;
    const TOP: Level = Level::Avx2;
    #[inline(always)]
    fn apply(a: i32, b: i32, c: u32, _imm: u64) -> u32 {
        let max = (1 << (BITS - u32::from(SIGNED))) - 1;
        let min = if SIGNED { -max - 1 } else { 0 };
        let one = |x: i32| x.clamp(min, max) as u32 & ((1 << BITS) - 1);
        Int::shl(c, 2 * BITS) | one(a) << BITS | one(b)
    }
}
