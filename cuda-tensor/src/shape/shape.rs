//! `IntoShape`: the sizes of a tensor's dimensions.

use cuda_core::{ExpectedShape, Limit, Quantity, Result};
use smallvec::SmallVec;

use super::error::shape_error;

/// The maximum number of dimensions of a tensor.
pub const MAX_RANK: usize = 8;

/// One number for each dimension.
pub(crate) type Dims = SmallVec<[usize; 4]>;

/// The sizes of a tensor's dimensions, outermost first: `5`, `[2, 3]`, a slice or a vector. `()` is the shape of a
/// single element.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape",
    note = "a shape is a `usize`, an array, slice or vector of `usize`, or `()`: write `[2, 3]`, and `n as usize`"
)]
pub trait IntoShape: Send {
    /// Returns the sizes.
    fn dims(&self) -> &[usize];
}

impl IntoShape for () {
    fn dims(&self) -> &[usize] {
        &[]
    }
}

impl IntoShape for usize {
    fn dims(&self) -> &[usize] {
        std::slice::from_ref(self)
    }
}

macro_rules! shapes {
    ($([$($generics:tt)*] $shape:ty;)*) => {$(
        impl<$($generics)*> IntoShape for $shape {
            fn dims(&self) -> &[usize] {
                &self[..]
            }
        }
    )*};
}

shapes! {
    [const N: usize] [usize; N];
    [const N: usize] &[usize; N];
    [] &[usize];
    [] Vec<usize>;
    [] &Vec<usize>;
}

/// Returns the number of elements of a shape.
///
/// # Errors
/// [`Error::OutOfRange`](cuda_core::Error::OutOfRange) if there are too many dimensions,
/// [`Error::Shape`](cuda_core::Error::Shape) if there are too many elements.
pub(crate) fn len_of(dims: &[usize]) -> Result<usize> {
    let limit = Limit::AtMost(MAX_RANK as u64);
    limit.check("a tensor", Quantity::Dimensions, dims.len() as u64)?;
    // Zeros do not hide an overflow of the other dimensions: strides are products of them.
    let nonzero = dims.iter().filter(|size| **size > 0);
    let product = nonzero.copied().try_fold(1usize, usize::checked_mul);
    match product.filter(|len| *len <= isize::MAX as usize) {
        Some(len) => Ok(if dims.contains(&0) { 0 } else { len }),
        None => {
            let form = "have at most 2^63 - 1 elements; use smaller dimensions";
            Err(shape_error(dims, ExpectedShape::Form(form)))
        }
    }
}

#[cfg(test)]
mod tests {
    use cuda_core::Error;

    use super::*;

    #[test]
    fn shapes_have_lengths_and_limits() {
        assert_eq!(len_of(().dims()).unwrap(), 1);
        assert_eq!(len_of([2, 0, 3].dims()).unwrap(), 0);
        assert_eq!(len_of(vec![4, 5].dims()).unwrap(), 20);
        for wrong in [vec![1; MAX_RANK + 1], vec![usize::MAX, 2], vec![0, usize::MAX, 3]] {
            assert!(
                matches!(len_of(&wrong), Err(Error::OutOfRange { .. } | Error::Shape { .. })),
                "{wrong:?}"
            );
        }
    }
}
