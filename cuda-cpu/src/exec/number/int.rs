//! Operations of the integer types, and their representation in memory.

use super::lane::Lane;
use crate::memory::access::Word;

/// An integer with PTX semantics: arithmetic wraps, shifts clamp, and nothing traps.
pub(crate) trait Int: Lane + Ord {
    const BITS: u32;
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn mul_hi(self, b: Self) -> Self;
    /// Returns the quotient. For `b` = 0 all bits are set, as on a GPU.
    fn div(self, b: Self) -> Self;
    /// Returns the remainder. For `b` = 0 all bits are set, as in the quotient.
    fn rem(self, b: Self) -> Self;
    fn add_sat(self, b: Self) -> Self;
    fn sub_sat(self, b: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn and(self, b: Self) -> Self;
    fn or(self, b: Self) -> Self;
    fn xor(self, b: Self) -> Self;
    fn not(self) -> Self;
    fn shl(self, by: u32) -> Self;
    fn shr(self, by: u32) -> Self;
    fn from_i128(wide: i128) -> Self;
    fn clamp_i128(wide: i128) -> Self;
    /// Clamps to the type's range. Only for types of at most 32 bits.
    fn clamp_i64(wide: i64) -> Self;
    fn to_i128(self) -> i128;
    /// Returns the value as 64 bits, with the sign or zero extension of the type.
    fn bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
}

macro_rules! int {
    ($($ty:ty, $wide:ty;)*) => { $(
        impl Int for $ty {
            const BITS: u32 = <$ty>::BITS;
            #[inline(always)]
            fn add(self, b: Self) -> Self { self.wrapping_add(b) }
            #[inline(always)]
            fn sub(self, b: Self) -> Self { self.wrapping_sub(b) }
            #[inline(always)]
            fn mul(self, b: Self) -> Self { self.wrapping_mul(b) }
            #[inline(always)]
            fn mul_hi(self, b: Self) -> Self {
                ((self as $wide).wrapping_mul(b as $wide) >> <$ty>::BITS) as $ty
            }
            #[inline(always)]
            fn div(self, b: Self) -> Self { if b == 0 { !0 } else { self.wrapping_div(b) } }
            #[inline(always)]
            fn rem(self, b: Self) -> Self { if b == 0 { !0 } else { self.wrapping_rem(b) } }
            #[inline(always)]
            fn add_sat(self, b: Self) -> Self { self.saturating_add(b) }
            #[inline(always)]
            fn sub_sat(self, b: Self) -> Self { self.saturating_sub(b) }
            #[inline(always)]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            fn abs(self) -> Self {
                #[allow(unused_comparisons)]
                if self < 0 { self.wrapping_neg() } else { self }
            }
            #[inline(always)]
            fn and(self, b: Self) -> Self { self & b }
            #[inline(always)]
            fn or(self, b: Self) -> Self { self | b }
            #[inline(always)]
            fn xor(self, b: Self) -> Self { self ^ b }
            #[inline(always)]
            fn not(self) -> Self { !self }
            #[inline(always)]
            fn shl(self, by: u32) -> Self {
                if by < <$ty>::BITS { self.wrapping_shl(by) } else { 0 }
            }
            #[inline(always)]
            fn shr(self, by: u32) -> Self {
                if by < <$ty>::BITS {
                    self.wrapping_shr(by)
                } else {
                    self.wrapping_shr(<$ty>::BITS - 1).wrapping_shr(1)
                }
            }
            #[inline(always)]
            fn from_i128(wide: i128) -> Self { wide as $ty }
            #[inline(always)]
            fn clamp_i128(wide: i128) -> Self {
                wide.clamp(<$ty>::MIN as i128, <$ty>::MAX as i128) as $ty
            }
            #[inline(always)]
            fn clamp_i64(wide: i64) -> Self {
                if <$ty>::BITS == 64 {
                    return wide as $ty;
                }
                wide.clamp(<$ty>::MIN as i64, <$ty>::MAX as i64) as $ty
            }
            #[inline(always)]
            fn to_i128(self) -> i128 { self as i128 }
            #[inline(always)]
            fn bits(self) -> u64 { self as u64 }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self { bits as $ty }
        }
    )* };
}

int! {
    u8, u16; i8, i16; u16, u32; i16, i32; u32, u64; i32, i64; u64, u128; i64, i128;
}

/// A type and its representation in memory.
pub(crate) trait Stored: Int {
    type Word: Word + Default;
    /// The unsigned type with the same size.
    type Unsigned: Stored;
    const BYTES: u64 = size_of::<Self::Word>() as u64;
    fn from_word(word: Self::Word) -> Self;
    fn to_word(self) -> Self::Word;
}

macro_rules! stored {
    ($($ty:ty as $word:ty),*) => { $(
        impl Stored for $ty {
            type Word = $word;
            type Unsigned = $word;
            #[inline(always)]
            fn from_word(word: $word) -> Self { word as $ty }
            #[inline(always)]
            fn to_word(self) -> $word { self as $word }
        }
    )* };
}

stored!(u8 as u8, i8 as u8, u16 as u16, i16 as u16, u32 as u32, u64 as u64);
