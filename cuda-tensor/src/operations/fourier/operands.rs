//! `Transform`: the operands of a batch of Fourier transforms.

use cuda_core::{ExpectedShape, Result};

use crate::{
    element::dtype::FftFloat, forms::TensorInput, shape::error::shape_error, tensor::Tensor,
};

/// A batch of transforms of `x` into `y`, contiguous tensors of the same shape. Each way to compute them is a method in
/// a file of its own.
pub(super) struct Transform<I: TensorInput<Element: FftFloat>> {
    pub(super) x: I,
    pub(super) y: Tensor<I::Element>,
    pub(super) sizes: Sizes,
    pub(super) direction: Direction,
}

/// The direction of a transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    /// Divides by the number of elements.
    Inverse,
}

impl Direction {
    /// Returns the name of the operation.
    pub(super) const fn called(self) -> &'static str {
        match self {
            Self::Forward => "fft",
            Self::Inverse => "ifft",
        }
    }
}

/// A batch of transforms of `n` complex numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) n: usize,
}

impl Sizes {
    /// The transforms of a tensor of shape `[.., n, 2]`.
    pub(super) fn of(shape: &[usize]) -> Result<Self> {
        if let [batch @ .., n, 2] = shape {
            return Ok(Self { batch: batch.iter().product(), n: *n });
        }
        let form = "be [.., n, 2], with the real and the imaginary part of each number in the last dimension";
        Err(shape_error(shape, ExpectedShape::Form(form)))
    }
}
