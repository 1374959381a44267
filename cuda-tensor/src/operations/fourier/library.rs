//! Fourier transforms with cuFFT (feature `cudarc`).

use std::sync::Arc;

use cuda_async::{
    DeviceOp, IntoDeviceOp, defer, memory::uninitialized, ops::Either, value, with_context,
};
use cuda_core::{Access, Error, ForeignCall, Result};

use crate::{
    element::dtype::FftFloat,
    forms::TensorInput,
    libraries::{
        cufft::{CUFFT, Plan, Shape},
        is_enabled,
    },
    operations::{
        fourier::operands::{Direction, Sizes, Transform},
        pairs::{Binary, map_scalar},
    },
    tensor::Tensor,
};

impl<I: TensorInput<Element: FftFloat>> Transform<I> {
    /// Transforms with cuFFT, or with the kernels of this crate if that is not possible.
    pub(super) fn by_library(self) -> impl DeviceOp<Output = Tensor<I::Element>> {
        defer(move || {
            let Sizes { batch, n } = self.sizes;
            let [batch, n] = [batch, n].map(|size| i64::try_from(size).unwrap_or(0));
            if !is_enabled() || batch == 0 || n == 0 {
                return Either::Left(self.by_kernels());
            }
            let double = size_of::<I::Element>() == 8;
            let plan = CUFFT.of(move |gpu| Shape { gpu, n, batch, double });
            Either::Right(plan.then(move |plan| match plan {
                Some(plan) => Either::Left(self.with(plan)),
                None => Either::Right(self.by_kernels()),
            }))
        })
    }

    /// Transforms with this plan of cuFFT, and scales an inverse transform. Uses the kernels of this crate if x is not
    /// aligned.
    fn with(self, plan: Arc<Plan>) -> impl DeviceOp<Output = Tensor<I::Element>> {
        let inverse = self.direction == Direction::Inverse;
        uninitialized::<u8>(plan.workspace()).then(move |scratch| {
            with_context(move |cx| {
                let mut is_done = true;
                cx.enqueue(|stream| -> Result<()> {
                    let call = ForeignCall::new()
                        .uses(self.x.memory()?, Access::Read)
                        .uses(self.y.memory()?, Access::Write)
                        .uses(scratch.as_slice(), Access::Write);
                    // SAFETY: the commands use only the memory of the call: x and y have the sizes of the plan, and y
                    // and the scratch memory are owned here.
                    unsafe {
                        call.submit(stream, |raw, addresses| {
                            is_done = plan.run(inverse, raw, addresses)?;
                            Ok(())
                        })
                    }?;
                    Ok(())
                })?;
                Ok::<_, Error>(match is_done {
                    true => Either::Left(scaled(self.y, inverse, self.sizes)),
                    false => Either::Right(self.by_kernels()),
                })
            })
        })
    }
}

/// Divides the elements of an inverse transform by its length.
fn scaled<T: FftFloat>(
    y: Tensor<T>,
    inverse: bool,
    sizes: Sizes,
) -> impl DeviceOp<Output = Tensor<T>> {
    let op = if inverse {
        let scale = T::of(1.0 / sizes.n as f64);
        Either::Left(map_scalar(y, (Binary::Mul, scale, false)))
    } else {
        Either::Right(value(y))
    };
    op.into_op()
}
