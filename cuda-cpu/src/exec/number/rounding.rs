//! Directed rounding and round-to-odd, without changing the processor's rounding mode.
//!
//! Each operation is rounded to nearest. The sign of its rounding error decides whether the result is then moved by one
//! unit.

/// A rounding mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// To nearest, ties to even.
    Nearest,
    Zero,
    Down,
    Up,
    /// To the neighbor with an odd last bit. A second rounding is then correct.
    Odd,
}

impl Round {
    pub(crate) fn from_code(code: u64) -> Self {
        match code {
            0 => Self::Nearest,
            1 => Self::Zero,
            2 => Self::Down,
            3 => Self::Up,
            _ => Self::Odd,
        }
    }
}

macro_rules! stepped {
    ($name:ident, $ty:ty) => {
        /// Adjusts `nearest` for the rounding mode, given the sign of (exact - nearest).
        pub(crate) fn $name(nearest: $ty, lost: f64, mode: Round) -> $ty {
            if lost == 0.0 || nearest.is_nan() || lost.is_nan() {
                return nearest;
            }
            let towards_zero = || match (nearest.is_sign_negative(), lost > 0.0) {
                (false, false) => nearest.next_down(),
                (true, true) => nearest.next_up(),
                _ => nearest,
            };
            match mode {
                Round::Nearest => nearest,
                Round::Zero => towards_zero(),
                Round::Down if lost < 0.0 => nearest.next_down(),
                Round::Up if lost > 0.0 => nearest.next_up(),
                Round::Odd => <$ty>::from_bits(towards_zero().to_bits() | 1),
                _ => nearest,
            }
        }
    };
}

stepped!(step_f32, f32);
stepped!(step_f64, f64);

/// Rounds `x`, plus an infinitesimal with the sign of `beyond`, to f32.
pub(crate) fn f64_to_f32(x: f64, beyond: f64, mode: Round) -> f32 {
    let nearest = x as f32;
    if x.is_infinite() {
        return nearest;
    }
    let lost = x - f64::from(nearest);
    step_f32(nearest, if lost == 0.0 { beyond } else { lost }, mode)
}

/// Returns whether a number is below the normal f32 numbers when rounded to their precision. `.ftz` flushes these
/// results.
#[inline(always)]
pub(crate) fn rounds_to_denormal(x: f64, mode: Round) -> bool {
    /// The smallest normal number, the next one below with the same precision, and their midpoint.
    const NORMAL: f64 = f32::MIN_POSITIVE as f64;
    const BELOW: f64 = NORMAL * (1.0 - 1.0 / 16_777_216.0);
    const MIDDLE: f64 = NORMAL * (1.0 - 0.5 / 16_777_216.0);
    match mode {
        Round::Nearest => x.abs() < MIDDLE,
        Round::Up if x > 0.0 => x <= BELOW,
        Round::Down if x < 0.0 => -x <= BELOW,
        _ => x.abs() < NORMAL,
    }
}

/// Returns the rounding error of `a + b`.
fn lost_in_sum(a: f64, b: f64, sum: f64) -> f64 {
    if !sum.is_finite() {
        return overflow_loss(sum, a.is_finite() && b.is_finite());
    }
    let t = sum - a;
    (a - (sum - t)) + (b - t)
}

/// An infinity from finite operands is beyond the exact result.
fn overflow_loss(result: f64, finite: bool) -> f64 {
    if finite && result.is_infinite() { -result } else { 0.0 }
}

/// An exact zero from operands that cancel is negative if rounding down.
fn signed_zero(result: f64, cancelled: bool, mode: Round) -> f64 {
    if result == 0.0 && cancelled && mode == Round::Down { -0.0 } else { result }
}

pub(crate) fn add_f64(a: f64, b: f64, mode: Round) -> f64 {
    let sum = a + b;
    let cancels = a.is_sign_negative() != b.is_sign_negative();
    signed_zero(step_f64(sum, lost_in_sum(a, b, sum), mode), cancels, mode)
}

pub(crate) fn mul_f64(a: f64, b: f64, mode: Round) -> f64 {
    let p = a * b;
    let lost = match p.is_finite() {
        true => product_loss(a, b, p),
        false => overflow_loss(p, a.is_finite() && b.is_finite()),
    };
    step_f64(p, lost, mode)
}

/// Below this, a product's rounding error may underflow.
const TINY: f64 = 1e-250;

/// Above this, sums and products on the way to a finite result may overflow. Large numbers are scaled by `SHRINK`.
const HUGE: f64 = 1e300;
const SHRINK: f64 = 1.0 / 256.0;

/// Factors for small numbers (2^550, 2^200 and 2^100), so that errors do not underflow.
const SCALE: f64 = f64::from_bits((1023 + 550) << 52);
const SCALE_DIV: f64 = f64::from_bits((1023 + 200) << 52);
const SCALE_ROOT: f64 = f64::from_bits((1023 + 100) << 52);

/// Returns a number with the sign of `a * b - p`.
fn product_loss(a: f64, b: f64, p: f64) -> f64 {
    if p.abs() > TINY || a == 0.0 || b == 0.0 {
        return a.mul_add(b, -p);
    }
    // The larger factor is below 2^245 here, because the product is tiny.
    (a * SCALE).mul_add(b * SCALE, -(p * SCALE * SCALE))
}

pub(crate) fn fma_f64(a: f64, b: f64, c: f64, mode: Round) -> f64 {
    let r = a.mul_add(b, c);
    if mode == Round::Nearest {
        return r;
    }
    if !r.is_finite() {
        let finite = a.is_finite() && b.is_finite() && c.is_finite();
        return step_f64(r, overflow_loss(r, finite), mode);
    }
    let lost = fma_loss(a, b, c, r);
    let cancels = (a.is_sign_negative() != b.is_sign_negative()) != c.is_sign_negative();
    signed_zero(step_f64(r, lost, mode), cancels && lost == 0.0, mode)
}

/// Returns a number with the sign of `a * b + c - r`, where `r` is the nearest result.
fn fma_loss(a: f64, b: f64, c: f64, r: f64) -> f64 {
    if (a * b).abs() > HUGE || r.abs() > HUGE && (a * b).abs() > TINY {
        // The addend may be too small to be scaled down, but its sign matters.
        let least = if c == 0.0 { c } else { f64::MIN_POSITIVE.copysign(c) };
        let small = if c.abs() < f64::MIN_POSITIVE / SHRINK { least } else { c * SHRINK };
        let (x, y) = if a.abs() > b.abs() { (a * SHRINK, b) } else { (a, b * SHRINK) };
        return fma_error(x, y, small, r * SHRINK);
    }
    if (a * b).abs() > TINY || a == 0.0 || b == 0.0 {
        return fma_error(a, b, c, r);
    }
    if c.abs() > 1e-200 {
        // The product is too small to change `c`, but its sign matters.
        return if a.is_sign_negative() == b.is_sign_negative() { 1.0 } else { -1.0 };
    }
    fma_error(a * SCALE, b * SCALE, c * SCALE * SCALE, r * SCALE * SCALE)
}

/// Returns the error of a fused multiply-add, rounded. Its sign is that of the exact error.
fn fma_error(a: f64, b: f64, c: f64, r: f64) -> f64 {
    let u1 = a * b;
    let u2 = a.mul_add(b, -u1);
    let alpha = c + u2;
    let z = lost_in_sum(c, u2, alpha);
    let beta = u1 + alpha;
    let beta_low = lost_in_sum(u1, alpha, beta);
    ((beta - r) + beta_low) + z
}

pub(crate) fn div_f64(a: f64, b: f64, mode: Round) -> f64 {
    let q = a / b;
    if !q.is_finite() || b.is_infinite() {
        return step_f64(q, overflow_loss(q, a.is_finite() && b != 0.0), mode);
    }
    let scale = if a.abs() < TINY { SCALE_DIV } else { 1.0 };
    let rest = (-q * scale).mul_add(b, a * scale);
    step_f64(q, if b.is_sign_negative() { -rest } else { rest }, mode)
}

pub(crate) fn sqrt_f64(a: f64, mode: Round) -> f64 {
    let s = a.sqrt();
    let scale = if a < TINY { SCALE_ROOT } else { 1.0 };
    let rest = (-s * scale).mul_add(s * scale, a * scale * scale);
    let lost = if s.is_finite() { rest } else { 0.0 };
    step_f64(s, lost, mode)
}

#[cfg(test)]
pub(crate) fn add_f32(a: f32, b: f32, mode: Round) -> f32 {
    let (x, y) = (f64::from(a), f64::from(b));
    let sum = x + y;
    let cancels = a.is_sign_negative() != b.is_sign_negative();
    let r = f64_to_f32(sum, lost_in_sum(x, y, sum), mode);
    signed_zero(f64::from(r), cancels && sum == 0.0, mode) as f32
}

#[cfg(test)]
pub(crate) fn mul_f32(a: f32, b: f32, mode: Round) -> f32 {
    f64_to_f32(f64::from(a) * f64::from(b), 0.0, mode)
}

pub(crate) fn fma_f32(a: f32, b: f32, c: f32, mode: Round) -> f32 {
    let (p, z) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = p + z;
    let cancels = p.is_sign_negative() != c.is_sign_negative();
    let r = f64_to_f32(sum, lost_in_sum(p, z, sum), mode);
    signed_zero(f64::from(r), cancels && sum == 0.0, mode) as f32
}

pub(crate) fn div_f32(a: f32, b: f32, mode: Round) -> f32 {
    let (x, y) = (f64::from(a), f64::from(b));
    let q = x / y;
    let rest = if q.is_finite() && y.is_finite() { (-q).mul_add(y, x) } else { 0.0 };
    f64_to_f32(q, if y.is_sign_negative() { -rest } else { rest }, mode)
}

pub(crate) fn sqrt_f32(a: f32, mode: Round) -> f32 {
    let x = f64::from(a);
    let s = x.sqrt();
    let rest = if s.is_finite() { (-s).mul_add(s, x) } else { 0.0 };
    f64_to_f32(s, rest, mode)
}
