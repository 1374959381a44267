//! Scalar types and state spaces.

use std::fmt;

use crate::words::words;

words! {
    /// A type of PTX.
    ///
    /// Variables and registers have the fundamental types ([`is_fundamental`](Self::is_fundamental)). The others only occur
    /// in instructions, whose operands are registers of untyped bits.
    pub enum ScalarType {
        B1 = "b1",
        B128 = "b128",
        B16 = "b16",
        B32 = "b32",
        B64 = "b64",
        B8 = "b8",
        BF16 = "bf16",
        BF16x2 = "bf16x2",
        E2M1 = "e2m1",
        E2M1x2 = "e2m1x2",
        E2M3 = "e2m3",
        E2M3x2 = "e2m3x2",
        E3M2 = "e3m2",
        E3M2x2 = "e3m2x2",
        E4M3 = "e4m3",
        E4M3x2 = "e4m3x2",
        E5M2 = "e5m2",
        E5M2x2 = "e5m2x2",
        F16 = "f16",
        F16x2 = "f16x2",
        F32 = "f32",
        F32x2 = "f32x2",
        F64 = "f64",
        Pred = "pred",
        S16 = "s16",
        S16x2 = "s16x2",
        S2 = "s2",
        S32 = "s32",
        S4 = "s4",
        S64 = "s64",
        S8 = "s8",
        TF32 = "tf32",
        U16 = "u16",
        U16x2 = "u16x2",
        U2 = "u2",
        U32 = "u32",
        U4 = "u4",
        U64 = "u64",
        U8 = "u8",
    }
}

impl ScalarType {
    /// Returns whether variables and registers can have this type.
    pub const fn is_fundamental(self) -> bool {
        use ScalarType::*;
        matches!(
            self,
            B8 | B16
                | B32
                | B64
                | B128
                | U8
                | U16
                | U32
                | U64
                | S8
                | S16
                | S32
                | S64
                | F16
                | F16x2
                | BF16
                | BF16x2
                | F32
                | F64
                | Pred
        )
    }

    /// Returns the integer type of twice the size.
    pub(crate) const fn doubled(self) -> Option<Self> {
        match self {
            Self::U16 => Some(Self::U32),
            Self::S16 => Some(Self::S32),
            Self::U32 => Some(Self::U64),
            Self::S32 => Some(Self::S64),
            _ => None,
        }
    }

    /// Returns the interpretation of the bits.
    pub const fn kind(self) -> ScalarKind {
        use ScalarType::*;
        match self {
            B1 | B8 | B16 | B32 | B64 | B128 => ScalarKind::Bits,
            U2 | U4 | U8 | U16 | U16x2 | U32 | U64 => ScalarKind::Unsigned,
            S2 | S4 | S8 | S16 | S16x2 | S32 | S64 => ScalarKind::Signed,
            F16 | F16x2 | TF32 | F32 | F32x2 | F64 | E2M1 | E2M1x2 | E2M3 | E2M3x2 | E3M2
            | E3M2x2 | E4M3 | E4M3x2 | E5M2 | E5M2x2 => ScalarKind::Float,
            BF16 | BF16x2 => ScalarKind::Bfloat,
            Pred => ScalarKind::Predicate,
        }
    }

    /// Returns the size in bytes: 1 for a predicate, and for types of less than a byte.
    pub const fn size(self) -> u32 {
        use ScalarType::*;
        match self {
            B1 | U2 | S2 | U4 | S4 | B8 | U8 | S8 | E2M1 | E2M1x2 | E2M3 | E3M2 | E4M3 | E5M2
            | Pred => 1,
            B16 | U16 | S16 | F16 | BF16 | E2M3x2 | E3M2x2 | E4M3x2 | E5M2x2 => 2,
            B32 | U32 | S32 | F16x2 | BF16x2 | U16x2 | S16x2 | TF32 | F32 => 4,
            B64 | U64 | S64 | F64 | F32x2 => 8,
            B128 => 16,
        }
    }
}

impl fmt::Display for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The interpretation of a value's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScalarKind {
    /// Untyped bits, which hold a value of any kind. Compilers from CUDA 13 on declare many numbers this way.
    Bits,
    /// An unsigned integer.
    Unsigned,
    /// A signed integer.
    Signed,
    /// An IEEE floating-point number, or a vector of two.
    Float,
    /// A brain floating-point number, or a vector of two.
    Bfloat,
    /// A truth value.
    Predicate,
}

/// A state space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Space {
    Global,
    Const,
    Shared,
    Local,
    Param,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 tf32 f32 f32x2 \
            f64 pred"
            .split_whitespace()
        {
            assert_eq!(ScalarType::from_name(name).unwrap().to_string(), name);
        }
    }
}
