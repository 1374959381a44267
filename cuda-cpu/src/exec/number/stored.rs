//! In-memory representation of types.

use super::int::Int;
use crate::memory::access::Word;

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
