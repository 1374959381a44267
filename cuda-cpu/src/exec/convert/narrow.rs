//! `cvt` to and from halves, bytes and tf32, also packed, and `cvt.pack`.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::modifiers::{FTZ, RELU, ROUND, SAT, SATFINITE};
use crate::exec::map::{Binary, Ternary, Unary};
use crate::exec::number::float::{Float, NAN32};
use crate::exec::number::int::Int;
use crate::exec::number::lane::{Lane, Two};
use crate::exec::number::narrow::{Format, unless};
use crate::exec::number::rounding::Round;
use crate::lanes::simd::Level;

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
