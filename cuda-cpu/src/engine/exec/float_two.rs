//! Packed halves: every operation on both.

use super::float::Float;
use super::lane::Two;

impl<T: Float<Raw = u32>> Float for Two<T> {
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Self(self.0.add(b.0), self.1.add(b.1))
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Self(self.0.sub(b.0), self.1.sub(b.1))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        Self(self.0.mul(b.0), self.1.mul(b.1))
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        Self(self.0.fma(b.0, c.0), self.1.fma(b.1, c.1))
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        Self(self.0.min(b.0), self.1.min(b.1))
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        Self(self.0.max(b.0), self.1.max(b.1))
    }
    #[inline(always)]
    fn min_nan(self, b: Self) -> Self {
        Self(self.0.min_nan(b.0), self.1.min_nan(b.1))
    }
    #[inline(always)]
    fn max_nan(self, b: Self) -> Self {
        Self(self.0.max_nan(b.0), self.1.max_nan(b.1))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        Self(self.0.neg(), self.1.neg())
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.abs(), self.1.abs())
    }
    #[inline(always)]
    fn flush(self) -> Self {
        Self(self.0.flush(), self.1.flush())
    }
    #[inline(always)]
    fn saturate(self) -> Self {
        Self(self.0.saturate(), self.1.saturate())
    }
    #[inline(always)]
    fn canonical(self) -> Self {
        Self(self.0.canonical(), self.1.canonical())
    }
    #[inline(always)]
    fn with_sign_of(self, sign: Self) -> Self {
        Self(self.0.with_sign_of(sign.0), self.1.with_sign_of(sign.1))
    }
}
