//! `add`, `min` and `max` of two 16-bit integers in a register, and minima and maxima with `.relu`.

use crate::exec::macros::binary;
use crate::exec::number::int::Int;
use crate::exec::number::lane::{Lane, Two};

/// An integer or two packed ones.
pub(crate) trait Halves: Lane {
    fn each(self, b: Self, f: impl Fn(Self::One, Self::One) -> Self::One) -> Self;
    type One: Int;
}

impl<I: Int + Lane<Raw = u32>> Halves for Two<I> {
    type One = I;
    #[inline(always)]
    fn each(self, b: Self, f: impl Fn(I, I) -> I) -> Self {
        Self(f(self.0, b.0), f(self.1, b.1))
    }
}

impl Halves for i32 {
    type One = Self;
    #[inline(always)]
    fn each(self, b: Self, f: impl Fn(Self, Self) -> Self) -> Self {
        f(self, b)
    }
}

binary! {
    Add<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.add(b));
    Min<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.min(b));
    Max<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.max(b));
    MinRelu<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.min(b).max(H::One::default()));
    MaxRelu<H: Halves>: H, H => H, |a, b| a.each(b, |a, b| a.max(b).max(H::One::default()));
}
