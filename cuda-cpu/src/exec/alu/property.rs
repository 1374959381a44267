//! `testp`: properties of a number.

use crate::exec::map::Compare;
use crate::exec::number::float::Scalar;
use crate::lanes::simd::Level;

/// Tests the property whose index is in `imm`: finite, infinite, number, not a number, normal or subnormal.
pub(crate) struct TestProperty<F>(std::marker::PhantomData<F>);

/// Types whose properties can be tested.
pub(crate) trait Properties: Scalar {
    /// Returns one bit for each property.
    fn properties(self) -> u32;
}

/// Tests only the bits: compilers replace floating-point tests by others, and not always by equivalent ones.
macro_rules! properties {
    ($ty:ty) => {
        impl Properties for $ty {
            #[inline(always)]
            fn properties(self) -> u32 {
                let magnitude = self.to_bits() & !(-0.0 as $ty).to_bits();
                let infinity = <$ty>::INFINITY.to_bits();
                let (finite, nan) = (magnitude < infinity, magnitude > infinity);
                let subnormal = magnitude != 0 && magnitude < <$ty>::MIN_POSITIVE.to_bits();
                // Zero is normal on a GPU.
                let all =
                    [finite, magnitude == infinity, !nan, nan, finite & !subnormal, subnormal];
                all.into_iter().rev().fold(0, |bits, bit| bits << 1 | u32::from(bit))
            }
        }
    };
}

properties!(f32);
properties!(f64);

impl<F: Properties> Compare for TestProperty<F> {
    type A = F;
    type B = F;
    const TOP: Level = Level::Base;
    #[inline(always)]
    fn apply(a: F, _: F, imm: u64) -> bool {
        a.properties() >> imm & 1 != 0
    }
}
