//! Fourier transforms: `fft`, `ifft`.
//!
//! The kernels of this crate compute them on every device. With the feature `cudarc`, GPUs of this process use cuFFT
//! where it is installed.

use std::ops::ControlFlow::{Break, Continue};

use cuda_async::{
    DeviceOp, IntoDeviceOp, iterate,
    kernel::{ByValue, launch},
    ops::Either,
    value,
};
use cuda_core::{Error, ExpectedShape, Result};

use crate::{
    argument::{Read, Written, element_config},
    element::{FftFloat, kernel},
    forms::TensorInput,
    operations::{copy::contiguous, create::allocate},
    shape::{Layout, of_operation, shape_error},
    tensor::Tensor,
};

/// A batch of transforms of `x` into `y`, contiguous tensors of the same shape.
struct Transform<I: TensorInput<Element: FftFloat>> {
    x: I,
    y: Tensor<I::Element>,
    sizes: Sizes,
    direction: Direction,
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
    const fn called(self) -> &'static str {
        match self {
            Self::Forward => "fft",
            Self::Inverse => "ifft",
        }
    }
}

/// A batch of transforms of `n` complex numbers.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    n: usize,
}

impl Sizes {
    /// The transforms of a tensor of shape `[.., n, 2]`.
    fn of(shape: &[usize]) -> Result<Self> {
        if let [batch @ .., n, 2] = shape {
            return Ok(Self { batch: batch.iter().product(), n: *n });
        }
        let form = "be [.., n, 2], with the real and the imaginary part of each number in the last dimension";
        Err(shape_error(shape, ExpectedShape::Form(form)))
    }
}

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

impl<I: TensorInput<Element: FftFloat>> Transform<I> {
    /// Transforms with the kernels of this crate.
    fn by_kernels(self) -> impl DeviceOp<Output = Tensor<I::Element>> {
        let Self { x, y, sizes, direction } = self;
        let factors = factors(sizes.n);
        let mut passes = passes(&factors, sizes, direction);
        // The length 1 has no factors: one pass copies.
        let first = passes.next();
        let rest: Vec<_> = passes.collect();
        pass(x, y, first.unwrap_or(Pass::copy(sizes))).then(move |y| {
            let mut rest = rest.into_iter();
            iterate(y, move |y| match rest.next() {
                None => Either::Left(value(Break(y))),
                Some(next) => {
                    let layout = Layout::contiguous(y.shape());
                    let next = layout.map(|layout| {
                        allocate(layout).then(move |z| pass(y, z, next)).map(Continue)
                    });
                    Either::Right(next.into_op())
                }
            })
        })
    }
}

/// The arguments of `fft_pass` in `fft.cuh`.
#[derive(Debug, Clone, Copy)]
struct Pass {
    sizes: Sizes,
    /// The product of the factors of the earlier passes.
    done: usize,
    factor: usize,
    direction: f64,
    scale: f64,
}

impl Pass {
    fn copy(sizes: Sizes) -> Self {
        Self { sizes, done: 1, factor: 1, direction: 1.0, scale: 1.0 }
    }
}

/// Returns the passes for these factors. The last one scales.
fn passes(
    factors: &[usize],
    sizes: Sizes,
    direction: Direction,
) -> impl Iterator<Item = Pass> + use<'_> {
    let (sign, scale) = match direction {
        Direction::Forward => (-1.0, 1.0),
        Direction::Inverse => (1.0, 1.0 / sizes.n as f64),
    };
    let mut done = 1;
    factors.iter().map(move |factor| {
        let before = done;
        done *= factor;
        let scale = if done == sizes.n { scale } else { 1.0 };
        Pass { sizes, done: before, factor: *factor, direction: sign, scale }
    })
}

/// Runs one pass.
fn pass<I, T>(x: I, y: Tensor<T>, pass: Pass) -> impl DeviceOp<Output = Tensor<T>>
where
    I: TensorInput<Element = T>,
    T: FftFloat,
{
    kernel::<T>(T::fft(), "fft_pass").then(move |kernel| {
        let Pass { sizes: Sizes { batch, n }, done, factor, direction, scale } = pass;
        let numbers = [batch, n, done, factor].map(|number| number as u64);
        let [batch_, n_, done, factor] = numbers;
        let (direction, scale) = (ByValue(T::of(direction)), ByValue(T::of(scale)));
        let args = (Read(x), Written(y), batch_, n_, done, factor, direction, scale);
        // SAFETY: reads and writes `batch * n` complex numbers, all of both tensors.
        unsafe { launch(&kernel, element_config(batch * n), args) }
    })
}

/// Returns the factors of a length: as many 4s as possible, then 2, and then the odd primes.
fn factors(n: usize) -> Vec<usize> {
    let (mut left, mut factors) = (n.max(1), Vec::new());
    for factor in [4, 2].into_iter().chain((3..).step_by(2)) {
        if left == 1 {
            break;
        }
        if factor > 4 && factor * factor > left {
            factors.push(left);
            break;
        }
        while left.is_multiple_of(factor) {
            factors.push(factor);
            left /= factor;
        }
    }
    factors
}

/// Fourier transforms with cuFFT.
#[cfg(feature = "cudarc")]
mod library {
    use std::sync::Arc;

    use cuda_async::{defer, memory::uninitialized, with_context};
    use cuda_core::{Access, ForeignCall};

    use super::*;
    use crate::{
        libraries::{
            cufft::{CUFFT, Plan, Shape},
            is_enabled,
        },
        operations::elementwise::{Binary, map_scalar},
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

        /// Transforms with this plan of cuFFT, and scales an inverse transform. Uses the kernels of this crate if x is
        /// not aligned.
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
                        // SAFETY: the commands use only the memory of the call: x and y have the sizes of the plan, and
                        // y and the scratch memory are owned here.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_the_length() {
        for n in 2..5000 {
            let factors = factors(n);
            assert_eq!(factors.iter().product::<usize>(), n);
            let is_prime = |n: usize| !(2..n).any(|divisor| n.is_multiple_of(divisor));
            assert!(
                factors.iter().all(|factor| *factor == 4 || is_prime(*factor)),
                "{n}: {factors:?}"
            );
        }
        assert!(factors(0).is_empty() && factors(1).is_empty());
    }
}
