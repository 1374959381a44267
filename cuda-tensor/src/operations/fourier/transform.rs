//! `fft`, `ifft`: discrete Fourier transforms.

use cuda_async::{DeviceOp, ops::Either, value};
use cuda_core::Error;

use crate::{
    element::dtype::FftFloat,
    forms::TensorInput,
    operations::{
        copy::contiguous,
        create::allocate,
        fourier::operands::{Direction, Sizes, Transform},
    },
    shape::{error::of_operation, layout::Layout},
    tensor::Tensor,
};

/// Transforms the complex numbers along the last dimension but one. The last dimension holds their real and imaginary
/// parts.
pub(crate) fn fft<I>(x: I, direction: Direction) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput<Element: FftFloat>,
{
    contiguous(x).then(move |x| {
        let layout = Layout::contiguous(x.layout().shape())?;
        let sizes = of_operation(direction.called(), Sizes::of(layout.shape()))?;
        let is_empty = layout.is_empty();
        Ok::<_, Error>(allocate(layout).then(move |y| {
            // Only a length with elements is limited, so only that one is factored.
            if is_empty {
                Either::Left(value(y))
            } else {
                Either::Right(compute(Transform { x, y, sizes, direction }))
            }
        }))
    })
}

fn compute<I>(transform: Transform<I>) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput<Element: FftFloat>,
{
    #[cfg(feature = "cudarc")]
    return transform.by_library();
    #[cfg(not(feature = "cudarc"))]
    transform.by_kernels()
}
