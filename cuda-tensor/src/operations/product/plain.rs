//! Matrix products with the kernels of this crate.

use bytemuck::{Pod, Zeroable};
use cuda_async::{
    DeviceOp,
    kernel::{ByValue, launch},
    ops::Either,
};
use cuda_core::LaunchConfig;

use crate::{
    argument::argument::{Read, Written},
    element::{
        dtype::Float,
        kernels::{FloatKernels, kernel},
    },
    forms::TensorInput,
    operations::product::operands::{Epilogue, Product, Sizes},
    tensor::Tensor,
};

/// The side of the tiles in `matmul.cuh`.
const TILE: usize = 64;

/// The number of threads of a block in `matmul.cuh`.
const BLOCK: u32 = 256;

/// `Product` of `matmul.cuh`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Parameters {
    batch: u64,
    m: u64,
    n: u64,
    k: u64,
    a: [u64; 3],
    b: [u64; 3],
    activation: u64,
}

impl<A, B, C> Product<A, B, C>
where
    A: TensorInput<Element: Float>,
    B: TensorInput<Element = A::Element>,
    C: TensorInput<Element = A::Element>,
{
    /// Computes the products with the kernels of this crate.
    pub(super) fn by_kernels(self) -> impl DeviceOp<Output = Tensor<A::Element>> {
        let Self { a, b, epilogue: Epilogue { bias, activation }, result, sizes } = self;
        let Sizes { batch, m, n, k } = sizes;
        let name = if bias.is_some() { "matmul_bias" } else { "matmul" };
        kernel::<A::Element>(A::Element::matmul(), name).then(move |kernel| {
            let distances = |strides: [usize; 3]| strides.map(|stride| stride as u64);
            let parameters = ByValue(Parameters {
                batch: batch as u64,
                m: m as u64,
                n: n as u64,
                k: k as u64,
                a: distances(a.strides),
                b: distances(b.strides),
                activation: activation as u64,
            });
            let tiles = batch.saturating_mul(m.div_ceil(TILE)).saturating_mul(n.div_ceil(TILE));
            let config = LaunchConfig::new(tiles.clamp(1, 1 << 24) as u32, BLOCK);
            let (a, b) = (Read(a.tensor), Read(b.tensor));
            // SAFETY: reads a and b at the offsets of their strides, which are inside their memory, and the n elements
            // of the bias, and writes all elements of the result.
            unsafe {
                match bias {
                    Some(bias) => {
                        let args = (a, b, Read(bias), Written(result), parameters);
                        Either::Left(launch(&kernel, config, args))
                    }
                    None => {
                        Either::Right(launch(&kernel, config, (a, b, Written(result), parameters)))
                    }
                }
            }
        })
    }
}
