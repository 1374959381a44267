//! Updates of single elements in memory, for asynchronous reductions.

use crate::{
    exec::number::{float::Float, int::Int, lane::Lane},
    memory::access::Word,
};

macro_rules! updates {
    ($($name:ident<$t:ident: $bound:path>, |$old:ident, $new:ident| $result:expr;)*) => { $(
        /// # Safety
        /// `at` must be valid and aligned for `W`.
        pub(crate) unsafe fn $name<$t: $bound + Lane<Raw: Bits>, W: Word + Bits>(at: *mut u8, value: u64) {
            let $new = $t::from_raw(<$t::Raw as Bits>::from_bits(value));
            // SAFETY: `at` is valid and aligned for `W`.
            unsafe {
                W::update(at, |old| {
                    let $old = $t::from_raw(<$t::Raw as Bits>::from_bits(old.to_bits()));
                    W::from_bits(Bits::to_bits($result.to_raw()))
                });
            }
        }
    )* };
}

/// Integers used as bit containers.
pub(crate) trait Bits {
    fn from_bits(bits: u64) -> Self;
    fn to_bits(self) -> u64;
}

macro_rules! bits {
    ($($ty:ty),*) => { $(
        impl Bits for $ty {
            fn from_bits(bits: u64) -> Self { bits as Self }
            fn to_bits(self) -> u64 { self.into() }
        }
    )* };
}

bits!(u16, u32, u64);

updates! {
    add<T: Int>, |old, new| old.add(new);
    min<T: Int>, |old, new| old.min(new);
    max<T: Int>, |old, new| old.max(new);
    and<T: Int>, |old, new| old.and(new);
    or<T: Int>, |old, new| old.or(new);
    xor<T: Int>, |old, new| old.xor(new);
    inc<T: Int>, |old, new| if old >= new { T::default() } else { old.add(T::from_bits(1)) };
    dec<T: Int>, |old, new| if old == T::default() || old > new { new } else { old.sub(T::from_bits(1)) };
    add_float<T: Float>, |old, new| old.add(new).canonical();
    min_float<T: Float>, |old, new| old.min(new);
    max_float<T: Float>, |old, new| old.max(new);
}
