//! Fourier transforms with cuFFT (feature `cudarc`).

use std::sync::Arc;

use cuda_core::{Access, Error, ForeignCall, Result};

use crate::{
    DeviceOp, IntoDeviceOp, defer,
    libraries::{
        cufft::{CUFFT, Plan, Shape},
        is_enabled,
    },
    memory::uninitialised,
    ops::Either,
    tensor::{
        element::dtype::FftFloat,
        forms::TensorInput,
        operations::{
            elementwise::{Binary, map_scalar},
            fourier::plain::plain,
            fourier::sizes::{Direction, Sizes},
        },
        tensor::Tensor,
    },
    value, with_context,
};

/// Transforms with cuFFT, or with the kernels of this crate if that is not possible.
pub(super) fn transform<I, T>(
    x: I,
    y: Tensor<T>,
    sizes: Sizes,
    direction: Direction,
) -> impl DeviceOp<Output = Tensor<T>>
where
    I: TensorInput<Element = T>,
    T: FftFloat,
{
    defer(move || {
        let [batch, n] = [sizes.batch, sizes.n].map(|size| i64::try_from(size).unwrap_or(0));
        if !is_enabled() || batch == 0 || n == 0 {
            return Either::Left(plain(x, y, sizes, direction));
        }
        let double = size_of::<T>() == 8;
        let plan = CUFFT.of(move |gpu| Shape { gpu, n, batch, double });
        Either::Right(plan.then(move |plan| match plan {
            Some(plan) => Either::Left(with(plan, x, y, sizes, direction)),
            None => Either::Right(plain(x, y, sizes, direction)),
        }))
    })
}

/// Transforms with this plan of cuFFT, and scales an inverse transform. Uses the kernels of this crate if x is not aligned.
fn with<I, T>(
    plan: Arc<Plan>,
    x: I,
    y: Tensor<T>,
    sizes: Sizes,
    direction: Direction,
) -> impl DeviceOp<Output = Tensor<T>>
where
    I: TensorInput<Element = T>,
    T: FftFloat,
{
    let inverse = direction == Direction::Inverse;
    uninitialised::<u8>(plan.workspace()).then(move |scratch| {
        with_context(move |cx| {
            let mut is_done = true;
            cx.enqueue(|stream| -> Result<()> {
                let call = ForeignCall::new()
                    .uses(x.memory()?, Access::Read)
                    .uses(y.memory()?, Access::Write)
                    .uses(scratch.as_slice(), Access::Write);
                // SAFETY: the commands use only the memory of the call: x and y have the sizes of the plan, and y and the
                // scratch memory are owned here.
                unsafe {
                    call.submit(stream, |raw, addresses| {
                        is_done = plan.run(inverse, raw, addresses)?;
                        Ok(())
                    })
                }?;
                Ok(())
            })?;
            Ok::<_, Error>(if is_done {
                Either::Left(scaled(y, inverse, sizes))
            } else {
                Either::Right(plain(x, y, sizes, direction))
            })
        })
    })
}

/// Divides the elements of an inverse transform by its length.
fn scaled<T: FftFloat>(
    y: Tensor<T>,
    inverse: bool,
    sizes: Sizes,
) -> impl DeviceOp<Output = Tensor<T>> {
    let op = if inverse {
        let scale = T::of(1.0 / sizes.n as f64);
        Either::Left(map_scalar(y, Binary::Mul, scale, false))
    } else {
        Either::Right(value(y))
    };
    op.into_op()
}
