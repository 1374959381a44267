//! Approximate functions, bit for bit as on a GPU, including the code that compilers emit around the function unit.
//!
//! Without `.ftz`, compilers scale arguments that the unit would flush to zero, or whose results it would flush, and
//! scale the results back. This file computes what ptxas emits for sm_90.

use half::{bf16, f16};

use super::mufu;
use crate::exec::map::{Binary, Unary};
use crate::exec::number::float::Float;
use crate::exec::number::lane::{Lane, Two};
use crate::exec::number::narrow::{Format, unless};
use crate::exec::number::rounding::{Round, rounds_to_denormal};

/// The factor for denormals before the unit processes them, and the largest argument of an unscaled reciprocal.
const UP: f32 = 16_777_216.0;
const LARGE: f32 = f32::from_bits(0x7E80_0000);

/// An approximate function of f32, with and without `.ftz`.
pub(crate) trait Function: 'static {
    fn flushing(x: f32) -> f32;
    fn keeping(x: f32) -> f32;
}

macro_rules! functions {
    ($($name:ident($x:ident) flushing $flushing:expr, keeping $keeping:expr;)*) => { $(
        pub(crate) struct $name;
        impl Function for $name {
            #[inline(always)]
            fn flushing($x: f32) -> f32 { $flushing }
            #[inline(always)]
            fn keeping($x: f32) -> f32 { $keeping }
        }
    )* };
}

functions! {
    Rcp(x) flushing unit(mufu::rcp, x), keeping {
        let scale = choose(x.abs() > LARGE, 0.25, if_denormal(x, UP, 1.0));
        unit(mufu::rcp, x * scale) * scale
    };
    Sqrt(x) flushing unit(mufu::sqrt, x), keeping {
        unit(mufu::sqrt, x * if_denormal(x, UP, 1.0)) * if_denormal(x, 1.0 / 4096.0, 1.0)
    };
    Rsqrt(x) flushing unit(mufu::rsq, x), keeping {
        unit(mufu::rsq, x * if_denormal(x, UP, 1.0)) * if_denormal(x, 4096.0, 1.0)
    };
    Lg2(x) flushing unit(mufu::lg2, x), keeping {
        unit(mufu::lg2, x * if_denormal(x, UP, 1.0)) + if_denormal(x, -24.0, 0.0)
    };
    Ex2(x) flushing unit(mufu::ex2, x), keeping {
        // Below -126, the result is the square of the function at half the argument.
        let small = x < -126.0;
        let y = unit(mufu::ex2, x * choose(small, 0.5, 1.0));
        y * choose(small, y, 1.0)
    };
    Sin(x) flushing unit(mufu::sin, in_turns(x)), keeping unit(mufu::sin, in_turns(x));
    Cos(x) flushing unit(mufu::cos, in_turns(x)), keeping unit(mufu::cos, in_turns(x));
    Tanh(x) flushing unit(mufu::tanh, x), keeping unit(mufu::tanh, x);
}

#[inline(always)]
fn unit(function: impl Fn(u32) -> u32, x: f32) -> f32 {
    f32::from_bits(function(x.to_bits()))
}

/// Returns `then` for denormals and zeros, for which it makes no difference.
#[inline(always)]
fn if_denormal(x: f32, then: f32, otherwise: f32) -> f32 {
    choose(x.abs() < f32::MIN_POSITIVE, then, otherwise)
}

#[inline(always)]
fn choose(condition: bool, then: f32, otherwise: f32) -> f32 {
    f32::from_bits(unless(otherwise.to_bits(), condition, then.to_bits()))
}

/// Returns `x / 2 pi`, rounded towards zero.
#[inline(always)]
fn in_turns(x: f32) -> f32 {
    // The constant 1/(2 pi) that compilers use. The product is exact, and a NaN keeps its upper bits.
    let product = f64::from(x) * f64::from(f32::from_bits(0x3E22_F983));
    f64::from_bits(product.to_bits() & !0x1FFF_FFFF) as f32
}

/// A function of f32, with `.ftz` if `FLUSH` is set.
pub(crate) struct Single<F, const FLUSH: bool>(std::marker::PhantomData<F>);

impl<F: Function, const FLUSH: bool> Unary for Single<F, FLUSH> {
    type A = f32;
    type D = f32;
    #[inline(always)]
    fn apply(a: f32, _imm: u64) -> f32 {
        (if FLUSH { F::flushing(a) } else { F::keeping(a) }).canonical()
    }
}

/// `div.approx` and `div.full`. The latter also scales large divisors.
pub(crate) struct Quotient<const FULL: bool, const FLUSH: bool>;

impl<const FULL: bool, const FLUSH: bool> Binary for Quotient<FULL, FLUSH> {
    type A = f32;
    type B = f32;
    type D = f32;
    #[inline(always)]
    fn apply(a: f32, b: f32, _imm: u64) -> f32 {
        let (a, b) = if FLUSH { (a.flush(), b.flush()) } else { (a, b) };
        let down = if FULL && b.abs() > LARGE { 0.25 } else { 1.0 };
        let up = if FLUSH { 1.0 } else { if_denormal(b, UP, 1.0) };
        let (a, b) = (a * down * up, b * down * up);
        let (a, b) = if FLUSH { (a.flush(), b.flush()) } else { (a, b) };
        let reciprocal = unit(mufu::rcp, b);
        let tiny =
            FLUSH && rounds_to_denormal(f64::from(a) * f64::from(reciprocal), Round::Nearest);
        let r = a * reciprocal;
        (if tiny { r * 0.0 } else { r }).canonical()
    }
}

/// A half, with the exact conversion to f32, and the conversion back, which truncates except to infinity.
pub(crate) trait Half: Lane {
    fn widen(self) -> f32;
    fn cut(x: f32) -> Self;
}

impl Half for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(Format::F16.widen(self.to_bits().into()))
    }
    #[inline(always)]
    fn cut(x: f32) -> Self {
        let bits = Format::F16.round(x.to_bits(), Round::Zero, false);
        Self::from_bits(unless(bits, x >= 65_536.0, 0x7C00) as u16)
    }
}

impl Half for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn cut(x: f32) -> Self {
        Self::from_bits((x.to_bits() >> 16) as u16)
    }
}

/// A half or two packed halves.
pub(crate) trait HalfLane: Lane {
    fn map<F: Function>(self) -> Self;
}

impl<H: Half<Raw = u32>> HalfLane for H {
    #[inline(always)]
    fn map<F: Function>(self) -> Self {
        Self::cut(F::flushing(self.widen()))
    }
}

impl<H: Half<Raw = u32>> HalfLane for Two<H> {
    #[inline(always)]
    fn map<F: Function>(self) -> Self {
        Self(self.0.map::<F>(), self.1.map::<F>())
    }
}

/// A function of halves. The unit computes it as for f32 and truncates the result.
pub(crate) struct OfHalves<F, H>(std::marker::PhantomData<(F, H)>);

impl<F: Function, H: HalfLane> Unary for OfHalves<F, H> {
    type A = H;
    type D = H;
    #[inline(always)]
    fn apply(a: H, _imm: u64) -> H {
        a.map::<F>()
    }
}

/// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`. The unit reads and writes upper words only.
pub(crate) struct Upper<const ROOT: bool>;

impl<const ROOT: bool> Unary for Upper<ROOT> {
    type A = f64;
    type D = f64;
    #[inline(always)]
    fn apply(a: f64, _imm: u64) -> f64 {
        let upper = (a.to_bits() >> 32) as u32;
        let upper = if ROOT { mufu::rsq64(upper) } else { mufu::rcp64(upper) };
        f64::from_bits(u64::from(upper) << 32)
    }
}

/// `rsqrt.approx.f64`: the unit's result, improved by one iteration.
pub(crate) struct RsqrtDouble;

impl Unary for RsqrtDouble {
    type A = f64;
    type D = f64;
    #[inline(always)]
    fn apply(a: f64, _imm: u64) -> f64 {
        let tiny = a.abs() < f64::MIN_POSITIVE;
        // 2^54, and below its square root 2^27.
        let x = if tiny { a * 18_014_398_509_481_984.0 } else { a };
        let r = Upper::<true>::apply(x, 0);
        let e = x.mul_add(-(r * r), 1.0);
        let better = 0.375f64.mul_add(e, 0.5).mul_add(r * e, r);
        let y = if tiny { better * 134_217_728.0 } else { better };
        let y = if a == f64::INFINITY { 0.0 } else { y };
        let y = if a < 0.0 { f64::from_bits(0xFFF8 << 48) } else { y };
        let y = if a.is_nan() { a + a } else { y };
        if a == 0.0 { f64::INFINITY.copysign(a) } else { y }
    }
}
