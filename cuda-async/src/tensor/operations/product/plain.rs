//! Matrix products with the kernels of this crate.

use bytemuck::{Pod, Zeroable};
use cuda_core::LaunchConfig;

use crate::{
    DeviceOp,
    kernel::{ByValue, launch},
    ops::Either,
    tensor::{
        argument::argument::{Read, Written},
        element::{
            dtype::Float,
            kernels::{FloatKernels, kernel},
        },
        forms::{Relaid, TensorInput},
        operations::copy::Contiguous,
        tensor::Tensor,
    },
};

/// The side of the tiles in `matmul.cuh`.
const TILE: usize = 64;

/// The number of threads of a block in `matmul.cuh`.
const BLOCK: u32 = 256;

/// A function that [`TensorOps::linear`](crate::tensor::TensorOps::linear) applies to each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    /// `x`.
    #[default]
    Identity,
    /// `x`, or 0 if `x` is negative.
    Relu,
    /// The approximation `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2` of GELU (Hendrycks and Gimpel, 2016).
    /// cuBLASLt computes the same function, but for f64 with less precision, so kernels of this crate compute it for f64.
    GeluTanh,
}

/// The number of products, and the sizes of their matrices: `m x k` and `k x n`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
}

/// The matrices of one side of the products.
pub(super) struct Matrices<I: TensorInput> {
    pub(super) tensor: Contiguous<Relaid<I>>,
    /// The distances of the matrices, of their rows and of their columns, in elements.
    pub(super) strides: [usize; 3],
}

/// The step after the products.
pub(super) struct Epilogue<C> {
    /// A bias of each column.
    pub(super) bias: Option<C>,
    pub(super) activation: Activation,
}

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

/// Returns the distances of the matrices, of their rows and of their columns, in a contiguous tensor.
pub(super) fn by_rows(shape: &[usize]) -> [usize; 3] {
    match shape {
        [.., rows, columns] => [rows * columns, *columns, 1],
        _ => [0, 0, 1],
    }
}

/// Computes the products with the kernels of this crate.
pub(super) fn plain<A, B, C>(
    a: Matrices<A>,
    b: Matrices<B>,
    Epilogue { bias, activation }: Epilogue<C>,
    result: Tensor<A::Element>,
    sizes: Sizes,
) -> impl DeviceOp<Output = Tensor<A::Element>>
where
    A: TensorInput<Element: Float>,
    B: TensorInput<Element = A::Element>,
    C: TensorInput<Element = A::Element>,
{
    let Sizes { batch, m, n, k } = sizes;
    let name = if bias.is_some() { "matmul_bias" } else { "matmul" };
    kernel::<A::Element>(A::Element::matmul(), name).then(move |kernel| {
        let distances = |strides: [usize; 3]| strides.map(|it| it as u64);
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
        // SAFETY: reads a and b at the offsets of their strides, which are inside their memory, and the n elements of the
        // bias, and writes all elements of the result.
        unsafe {
            match bias {
                Some(bias) => {
                    let args = (a, b, Read(bias), Written(result), parameters);
                    Either::Left(launch(&kernel, config, args))
                }
                None => Either::Right(launch(&kernel, config, (a, b, Written(result), parameters))),
            }
        }
    })
}
