//! Fourier transforms with the kernels of this crate: one pass for each factor of the length.

use std::ops::ControlFlow::{Break, Continue};

use cuda_async::{
    DeviceOp, IntoDeviceOp, iterate,
    kernel::{ByValue, launch},
    ops::Either,
    value,
};

use crate::{
    argument::argument::{Read, Written, element_config},
    element::{dtype::FftFloat, kernels::kernel},
    forms::TensorInput,
    operations::{
        create::allocate,
        fourier::operands::{Direction, Sizes, Transform},
    },
    shape::layout::Layout,
    tensor::Tensor,
};

impl<I: TensorInput<Element: FftFloat>> Transform<I> {
    /// Transforms with the kernels of this crate.
    pub(super) fn by_kernels(self) -> impl DeviceOp<Output = Tensor<I::Element>> {
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
