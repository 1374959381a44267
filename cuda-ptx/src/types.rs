//! Scalar types and state spaces.

use std::fmt;

/// A fundamental type of PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ScalarType {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    TF32,
    F32,
    F32x2,
    F64,
    Pred,
}

impl ScalarType {
    /// Returns the type named by a modifier such as `"u32"`.
    pub fn from_name(name: &str) -> Option<Self> {
        use ScalarType::*;
        Some(match name {
            "b8" => B8,
            "b16" => B16,
            "b32" => B32,
            "b64" => B64,
            "b128" => B128,
            "u8" => U8,
            "u16" => U16,
            "u32" => U32,
            "u64" => U64,
            "s8" => S8,
            "s16" => S16,
            "s32" => S32,
            "s64" => S64,
            "f16" => F16,
            "f16x2" => F16x2,
            "bf16" => BF16,
            "bf16x2" => BF16x2,
            "tf32" => TF32,
            "f32" => F32,
            "f32x2" => F32x2,
            "f64" => F64,
            "pred" => Pred,
            _ => return None,
        })
    }

    /// Returns the name in PTX, without the dot: `"u32"`.
    pub const fn name(self) -> &'static str {
        use ScalarType::*;
        match self {
            B8 => "b8",
            B16 => "b16",
            B32 => "b32",
            B64 => "b64",
            B128 => "b128",
            U8 => "u8",
            U16 => "u16",
            U32 => "u32",
            U64 => "u64",
            S8 => "s8",
            S16 => "s16",
            S32 => "s32",
            S64 => "s64",
            F16 => "f16",
            F16x2 => "f16x2",
            BF16 => "bf16",
            BF16x2 => "bf16x2",
            TF32 => "tf32",
            F32 => "f32",
            F32x2 => "f32x2",
            F64 => "f64",
            Pred => "pred",
        }
    }

    /// Returns the interpretation of the bits.
    pub const fn kind(self) -> ScalarKind {
        use ScalarType::*;
        match self {
            B8 | B16 | B32 | B64 | B128 => ScalarKind::Bits,
            U8 | U16 | U32 | U64 => ScalarKind::Unsigned,
            S8 | S16 | S32 | S64 => ScalarKind::Signed,
            F16 | F16x2 | TF32 | F32 | F32x2 | F64 => ScalarKind::Float,
            BF16 | BF16x2 => ScalarKind::Bfloat,
            Pred => ScalarKind::Predicate,
        }
    }

    /// Returns the size in bytes (1 for a predicate).
    pub const fn size(self) -> u32 {
        use ScalarType::*;
        match self {
            B8 | U8 | S8 | Pred => 1,
            B16 | U16 | S16 | F16 | BF16 => 2,
            B32 | U32 | S32 | F16x2 | BF16x2 | TF32 | F32 => 4,
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
