//! Types of C and D: the parts of their elements in sums, and the rounding of sums.

use half::f16;

use super::layout;
use super::parts::Format;
use crate::exec::number::float::{NAN32, Scalar};
use crate::exec::number::rounding::Round;
use crate::machine::code::Op;
use crate::machine::ctx::Ctx;

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
