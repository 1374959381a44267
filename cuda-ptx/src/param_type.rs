//! The types of kernel parameters.

use std::fmt;

use crate::types::{ScalarKind, ScalarType};

/// The declared type of a parameter.
///
/// [`Display`](fmt::Display) writes the type in PTX syntax, without the name: `u64`, `b8[24]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParamType {
    /// One value.
    Scalar(ScalarType),
    /// Several values: an array, a vector, or a struct, which compilers declare as an array of `b8`.
    Array {
        /// The type of each value.
        element: ScalarType,
        /// The number of values; 0 for `[]`.
        count: u32,
    },
}

impl ParamType {
    /// Returns the type of the value, or of each value of an array.
    pub const fn element(self) -> ScalarType {
        match self {
            ParamType::Scalar(element) | ParamType::Array { element, .. } => element,
        }
    }

    /// Returns the number of values.
    pub const fn count(self) -> u32 {
        match self {
            ParamType::Scalar(_) => 1,
            ParamType::Array { count, .. } => count,
        }
    }

    /// Returns the kind of the value, or of each value of an array.
    pub const fn kind(self) -> ScalarKind {
        self.element().kind()
    }

    /// Returns the size in bytes.
    pub const fn size(self) -> u64 {
        self.element().size() as u64 * self.count() as u64
    }
}

impl fmt::Display for ParamType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamType::Scalar(element) => element.fmt(f),
            ParamType::Array { element, count: 0 } => write!(f, "{element}[]"),
            ParamType::Array { element, count } => write!(f, "{element}[{count}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_display_as_in_ptx() {
        let bytes = |count| ParamType::Array { element: ScalarType::B8, count };
        for (ty, text, size) in [
            (ParamType::Scalar(ScalarType::BF16x2), "bf16x2", 4),
            (ParamType::Scalar(ScalarType::U64), "u64", 8),
            (bytes(24), "b8[24]", 24),
            (bytes(1), "b8[1]", 1),
            (bytes(0), "b8[]", 0),
        ] {
            assert_eq!((ty.to_string().as_str(), ty.size()), (text, size));
        }
    }
}
