//! `Reduction`: the function that combines elements.

use crate::tensor::Binary;

/// The function that combines the elements of several tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum. Integers wrap.
    Sum,
    /// Their product. Integers wrap.
    Product,
    /// The largest one. If one is NaN, the result is NaN or the largest number.
    Max,
    /// The smallest one. If one is NaN, the result is NaN or the smallest number.
    Min,
}

impl Reduction {
    pub(super) fn of_two(self) -> Binary {
        match self {
            Self::Sum => Binary::Add,
            Self::Product => Binary::Mul,
            Self::Max => Binary::Max,
            Self::Min => Binary::Min,
        }
    }
}
