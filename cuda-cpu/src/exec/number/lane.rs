//! Types of lane values.

use half::{bf16, f16};

use crate::isa::operand::Class;
use crate::lanes::simd::Level;
use crate::machine::ctx::Raw;

/// The encoding of an operand's constants and the width of its register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pred,
    W32,
    F32,
    W64,
    F64,
}

impl Kind {
    pub(crate) fn class(self) -> Class {
        match self {
            Self::Pred => Class::Pred,
            Self::W32 | Self::F32 => Class::W32,
            Self::W64 | Self::F64 => Class::W64,
        }
    }
}

/// The value of one lane. Narrow types are stored in 32-bit lanes: reading truncates, and writing extends.
pub(crate) trait Lane: Copy + Default + 'static {
    type Raw: Raw;
    const KIND: Kind;
    const SIGNED: bool = false;
    /// The highest level for which operations on the type are compiled by default.
    const TOP: Level = Level::Avx512;
    fn from_raw(raw: Self::Raw) -> Self;
    fn to_raw(self) -> Self::Raw;
}

macro_rules! int_lane {
    ($($ty:ty, $raw:ty, $kind:ident, $signed:literal, $top:ident;)*) => { $(
        impl Lane for $ty {
            type Raw = $raw;
            const KIND: Kind = Kind::$kind;
            const SIGNED: bool = $signed;
            const TOP: Level = Level::$top;
            #[inline(always)]
            fn from_raw(raw: $raw) -> Self { raw as $ty }
            #[inline(always)]
            fn to_raw(self) -> $raw { self as $raw }
        }
    )* };
}

int_lane! {
    u8, u32, W32, false, Avx2; i8, u32, W32, true, Avx2;
    u16, u32, W32, false, Avx2; i16, u32, W32, true, Avx2;
    u32, u32, W32, false, Avx512; i32, u32, W32, true, Avx512;
    u64, u64, W64, false, Avx512; i64, u64, W64, true, Avx512;
}

impl Lane for f32 {
    type Raw = u32;
    const KIND: Kind = Kind::F32;
    #[inline(always)]
    fn from_raw(raw: u32) -> Self {
        Self::from_bits(raw)
    }
    #[inline(always)]
    fn to_raw(self) -> u32 {
        self.to_bits()
    }
}

impl Lane for f64 {
    type Raw = u64;
    const KIND: Kind = Kind::F64;
    #[inline(always)]
    fn from_raw(raw: u64) -> Self {
        Self::from_bits(raw)
    }
    #[inline(always)]
    fn to_raw(self) -> u64 {
        self.to_bits()
    }
}

macro_rules! half_lane {
    ($($ty:ty),*) => { $(
        impl Lane for $ty {
            type Raw = u32;
            const KIND: Kind = Kind::W32;
            #[inline(always)]
            fn from_raw(raw: u32) -> Self { Self::from_bits(raw as u16) }
            #[inline(always)]
            fn to_raw(self) -> u32 { u32::from(self.to_bits()) }
        }
    )* };
}

half_lane!(f16, bf16);

/// Two f32 in one register. The first one is in the low bits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Pair(pub(crate) f32, pub(crate) f32);

impl Lane for Pair {
    type Raw = u64;
    const KIND: Kind = Kind::W64;
    // Compilers emit operations on pairs only for targets newer than sm_90.
    const TOP: Level = Level::Base;
    #[inline(always)]
    fn from_raw(raw: u64) -> Self {
        Self(f32::from_bits(raw as u32), f32::from_bits((raw >> 32) as u32))
    }
    #[inline(always)]
    fn to_raw(self) -> u64 {
        u64::from(self.0.to_bits()) | u64::from(self.1.to_bits()) << 32
    }
}

/// Two halves in one register. The first one is in the low bits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Two<T>(pub(crate) T, pub(crate) T);

impl<T: Lane<Raw = u32>> Lane for Two<T> {
    type Raw = u32;
    const KIND: Kind = Kind::W32;
    const TOP: Level = T::TOP;
    #[inline(always)]
    fn from_raw(raw: u32) -> Self {
        Self(T::from_raw(raw & 0xFFFF), T::from_raw(raw >> 16))
    }
    #[inline(always)]
    fn to_raw(self) -> u32 {
        (self.0.to_raw() & 0xFFFF) | (self.1.to_raw() << 16)
    }
}
