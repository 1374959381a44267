//! `testp`: properties of a number.

use cuda_ptx::{ScalarType as T, Word as W};

use crate::exec::form::Form;
use crate::exec::map;
use crate::exec::map::{Compare, Pick};
use crate::exec::number::float::Scalar;
use crate::lanes::simd::Level;

/// Tests the property in [`PROPERTIES`] whose index is in `imm`.
struct TestProperty<F>(std::marker::PhantomData<F>);

const PROPERTIES: [W; 6] =
    [W::Finite, W::Infinite, W::Number, W::Notanumber, W::Normal, W::Subnormal];

/// Types whose properties can be tested.
trait Properties: Scalar {
    /// Returns one bit for each of [`PROPERTIES`].
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

/// Selects the handler by the property's name and the type.
pub(crate) fn pick(form: &mut Form<'_>) -> Option<Pick> {
    let property = form.take_one(&PROPERTIES)?;
    let imm = PROPERTIES.iter().position(|&p| p == property)? as u64;
    let mut pick = match form.ty()? {
        T::F32 => map::compare::<TestProperty<f32>>(),
        T::F64 => map::compare::<TestProperty<f64>>(),
        _ => return None,
    };
    pick.sources[1] = None;
    Some(pick.with(imm))
}
