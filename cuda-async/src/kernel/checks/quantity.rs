//! Checked arithmetic of the integers in a declaration.

use std::fmt;

use crate::kernel::arguments::buffer_form::KernelBuffer;

/// The reason why an expression has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undefined {
    /// The value needs more than 128 bits.
    Overflow,
    /// A divisor is zero.
    DivisionByZero,
    /// The buffer has fewer dimensions.
    NoDimension,
}

impl fmt::Display for Undefined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overflow => "overflows 128 bits",
            Self::DivisionByZero => "divides by zero",
            Self::NoDimension => "names a dimension that the buffer does not have",
        })
    }
}

/// The value of an expression.
pub type Quantity = Result<i128, Undefined>;

/// An integer that an expression uses.
pub trait Integer: Copy {
    /// Converts the integer without loss.
    fn widened(self) -> i128;
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl Integer for $ty {
            #[inline]
            fn widened(self) -> i128 {
                self as i128
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize i128);

/// Returns the value of an integer.
///
/// # Errors
/// Never fails. It returns a `Result` as all other parts of an expression do.
#[inline(always)]
pub fn int(value: impl Integer) -> Quantity {
    Ok(value.widened())
}

/// Returns the number of elements of a buffer.
///
/// # Errors
/// Never fails, as [`int`].
#[inline(always)]
pub fn len(buffer: &impl KernelBuffer) -> Quantity {
    int(buffer.elements())
}

/// Returns the size of a dimension of a buffer.
///
/// # Errors
/// [`Undefined::NoDimension`] if there is no such dimension.
#[inline(always)]
pub fn size(buffer: &impl KernelBuffer, dimension: usize) -> Quantity {
    int(buffer.size(dimension).ok_or(Undefined::NoDimension)?)
}

macro_rules! operators {
    ($($(#[$doc:meta])* pub fn $name:ident: $checked:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// [`Undefined`] if an operand has no value, or the result needs more than 128 bits.
        #[inline(always)]
        pub fn $name(left: Quantity, right: Quantity) -> Quantity {
            let (left, right) = (left?, right?);
            left.$checked(right).ok_or(Undefined::Overflow)
        }
    )*};
}

operators! {
    /// Adds two values.
    pub fn add: checked_add;
    /// Subtracts the second value from the first.
    pub fn sub: checked_sub;
    /// Multiplies two values.
    pub fn mul: checked_mul;
}

/// Divides the first value by the second, and rounds toward zero.
///
/// # Errors
/// [`Undefined`] if an operand has no value, the divisor is zero, or the result needs more than 128 bits.
#[inline(always)]
pub fn div(left: Quantity, right: Quantity) -> Quantity {
    match (left?, right?) {
        (_, 0) => Err(Undefined::DivisionByZero),
        (left, right) => left.checked_div(right).ok_or(Undefined::Overflow),
    }
}

/// Returns the remainder of a division.
///
/// # Errors
/// The errors of [`div`].
#[inline(always)]
pub fn rem(left: Quantity, right: Quantity) -> Quantity {
    match (left?, right?) {
        (_, 0) => Err(Undefined::DivisionByZero),
        (left, right) => left.checked_rem(right).ok_or(Undefined::Overflow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_without_a_value_is_an_error() {
        assert_eq!(mul(int(u64::MAX), int(u64::MAX)), Err(Undefined::Overflow));
        assert_eq!(add(int(i128::MAX), int(1u8)), Err(Undefined::Overflow));
        assert_eq!(sub(int(i128::MIN), int(1u8)), Err(Undefined::Overflow));
        assert_eq!(div(int(1u8), int(0u8)), Err(Undefined::DivisionByZero));
        assert_eq!(rem(int(1u8), int(0u8)), Err(Undefined::DivisionByZero));
        assert_eq!(div(int(i128::MIN), int(-1i8)), Err(Undefined::Overflow));
        assert_eq!(sub(int(1u8), int(2u64)), Ok(-1));
        assert_eq!(div(int(7u8), int(2u8)), Ok(3));
    }
}
