//! What C and D may be: how their elements take part in sums, and how sums are rounded.

use half::f16;

use super::layout;
use super::parts::Format;
use crate::engine::ctx::Ctx;
use crate::engine::exec::float::{NAN32, Scalar};
use crate::engine::exec::rounding::Round;
use crate::engine::op::Op;

/// The elements of C or D, as bits.
pub(crate) type Sums = [[u32; 8]; 16];

/// A type of C or D.
pub(crate) trait Accumulator: 'static {
    /// Registers of a fragment.
    const REGISTERS: usize;
    const FORMAT: Format;
    fn read(ctx: &Ctx<'_>, op: &Op, first: usize) -> Sums;
    fn write(ctx: &mut Ctx<'_>, op: &Op, sums: &Sums);
    /// Rounds `total * 2^exponent`.
    fn round(total: i64, exponent: i32) -> u32;
    /// An infinity or NaN.
    fn from_special(value: f64) -> u32;
    /// The sum, rounded to nearest.
    fn add(a: u32, b: u32) -> u32;
}

/// How many of the smallest f32 make one.
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
            // What the conversion could round away is gone. Too large a sum becomes infinite all the same.
            let cut = value.to_bits() & !((1 << (f64::MANTISSA_DIGITS - f32::MANTISSA_DIGITS)) - 1);
            return (f64::from_bits(cut) as f32).to_bits();
        }
        let units = (value.abs() * UNITS) as u32;
        // A zero has no sign.
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
        // A zero has no sign.
        if half == f16::ZERO { 0 } else { half.to_bits().into() }
    }
    fn from_special(value: f64) -> u32 {
        u32::from(if value.is_nan() { 0x7FFF } else { f16::from_f64(value).to_bits() })
    }
    #[inline(always)]
    fn add(a: u32, b: u32) -> u32 {
        let value = |bits: u32| f16::from_bits(bits as u16).to_f32();
        // An f32 holds the sum so well that rounding twice does no harm.
        let sum = f16::from_f32(value(a) + value(b));
        u32::from(if sum.is_nan() { 0x7FFF } else { sum.to_bits() })
    }
}

/// f16, made f32 before anything else: C of a `wmma` with f32 results.
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

/// Exact: totals have less than 53 bits, and exponents are those of sums.
#[inline(always)]
fn scaled(total: i64, exponent: i32) -> f64 {
    total as f64 * f64::from_bits(((1023 + exponent) as u64) << 52)
}
