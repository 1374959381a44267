//! `Product`: the operands of a batch of matrix products.

use crate::{
    element::dtype::Float,
    forms::{TensorInput, WithLayout},
    operations::copy::Contiguous,
    tensor::Tensor,
};

/// A function that [`TensorOps::linear`](crate::TensorOps::linear) applies to each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    /// `x`.
    #[default]
    Identity,
    /// `x`, or 0 if `x` is negative.
    Relu,
    /// The approximation `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2` of GELU (Hendrycks and Gimpel,
    /// 2016). cuBLASLt computes the same function, but for f64 with less precision, so kernels of this crate compute it
    /// for f64.
    GeluTanh,
}

/// A batch of products `a b`, each with the same epilogue. Each way to compute them is a method in a file of its own.
pub(super) struct Product<A, B, C>
where
    A: TensorInput<Element: Float>,
    B: TensorInput<Element = A::Element>,
{
    pub(super) a: Matrices<A>,
    pub(super) b: Matrices<B>,
    pub(super) epilogue: Epilogue<C>,
    /// The tensor that receives the products, in row-major order.
    pub(super) result: Tensor<A::Element>,
    pub(super) sizes: Sizes,
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
    pub(super) tensor: Contiguous<WithLayout<I>>,
    /// The distances of the matrices, of their rows and of their columns, in elements.
    pub(super) strides: [usize; 3],
}

/// The step after the products.
pub(super) struct Epilogue<C> {
    /// A bias of each column.
    pub(super) bias: Option<C>,
    pub(super) activation: Activation,
}

/// Returns the distances of the matrices, of their rows and of their columns, in a contiguous tensor.
pub(super) fn by_rows(shape: &[usize]) -> [usize; 3] {
    match shape {
        [.., rows, columns] => [rows * columns, *columns, 1],
        _ => [0, 0, 1],
    }
}
