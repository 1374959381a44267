//! `matmul`, `linear`: matrix products.
//!
//! The kernels of this crate compute them on every device. With the feature `cudarc`, GPUs of this process use cuBLAS
//! and cuBLASLt where they are installed.

use cuda_async::{DeviceOp, IntoDeviceOp, defer, ops::Either, value};
use cuda_core::{Error, ExpectedShape, Result};

use crate::{
    element::dtype::Float,
    forms::{TensorInput, WithLayout},
    operations::{
        copy::{Contiguous, contiguous, dup},
        create::allocate,
        product::operands::{Activation, Epilogue, Matrices, Product, Sizes, by_rows},
    },
    shape::{
        error::{of_operation, shape_error},
        layout::{Layout, broadcast_shape, merge_dims},
        shape::Dims,
    },
    tensor::Tensor,
};

/// The shapes of a batch of products.
struct Shapes {
    /// The dimensions of the result before the last two.
    batch: Dims,
    m: usize,
    n: usize,
    k: usize,
}

impl Shapes {
    /// The product of `[.., m, k]` and `[.., k, n]`. The other dimensions are broadcast.
    fn of(a: &[usize], b: &[usize], called: &'static str) -> Result<Self> {
        let product = match (a, b) {
            ([of_a @ .., m, k], [of_b @ .., rows, n]) if k == rows => {
                let batch = broadcast_shape(of_a, of_b).ok();
                batch.map(|batch| Self { batch, m: *m, n: *n, k: *k })
            }
            _ => None,
        };
        let unfit = || Err(shape_error(a, ExpectedShape::ProductWith(b.into())));
        of_operation(called, product.map_or_else(unfit, Ok))
    }

    fn result(&self) -> Result<Layout> {
        let dims: Dims = self.batch.iter().copied().chain([self.m, self.n]).collect();
        Layout::contiguous(&dims[..])
    }
}

/// Computes `a b`.
pub(crate) fn matmul<A, B>((a, b): (A, B)) -> impl DeviceOp<Output = Tensor<A::Element>>
where
    A: TensorInput<Element: Float>,
    B: TensorInput<Element = A::Element>,
{
    let none = None::<Tensor<A::Element>>;
    multiply(a, b, none, Activation::Identity, "matmul")
}

/// Computes `activation(x w + bias)`.
pub(crate) fn linear<X, W, B>(
    (x, (weights, bias)): (X, (W, B)),
    activation: Activation,
) -> impl DeviceOp<Output = Tensor<X::Element>>
where
    X: TensorInput<Element: Float>,
    W: TensorInput<Element = X::Element>,
    B: TensorInput<Element = X::Element>,
{
    contiguous(bias).then(move |bias| multiply(x, weights, Some(bias), activation, "linear"))
}

fn multiply<A, B, C>(
    a: A,
    b: B,
    bias: Option<C>,
    activation: Activation,
    called: &'static str,
) -> impl DeviceOp<Output = Tensor<A::Element>>
where
    A: TensorInput<Element: Float>,
    B: TensorInput<Element = A::Element>,
    C: TensorInput<Element = A::Element>,
{
    defer(move || {
        let shapes = Shapes::of(a.layout().shape(), b.layout().shape(), called)?;
        if let Some(bias) = &bias
            && bias.layout().shape() != [shapes.n]
        {
            let operation = format!("the bias of `{called}`").into();
            let (given, expected) = (bias.layout().shape().into(), [shapes.n].into());
            let expected = ExpectedShape::Same(expected);
            return Err(Error::Shape { operation, given, expected });
        }
        // Checked before the sizes of the batch are multiplied.
        let layout = of_operation(called, shapes.result())?;
        let sizes =
            Sizes { batch: shapes.batch.iter().product(), m: shapes.m, n: shapes.n, k: shapes.k };
        let (a, b) = (batched(a, &shapes.batch), batched(b, &shapes.batch));
        let (a, b) = (of_operation(called, a)?, of_operation(called, b)?);
        let result = allocate::<A::Element>(layout);
        let epilogue = Epilogue { bias, activation };
        Ok(a.then(move |a| {
            b.then(move |b| {
                result.then(move |result| compute(Product { a, b, epilogue, result, sizes }))
            })
        }))
    })
}

/// Computes the products with cuBLAS or cuBLASLt where they are installed, else with the kernels of this crate.
fn compute<A, B, C>(product: Product<A, B, C>) -> impl DeviceOp<Output = Tensor<A::Element>>
where
    A: TensorInput<Element: Float>,
    B: TensorInput<Element = A::Element>,
    C: TensorInput<Element = A::Element>,
{
    #[cfg(feature = "cudarc")]
    return product.by_library();
    #[cfg(not(feature = "cudarc"))]
    product.by_kernels()
}

/// Gives the matrices of a tensor with the dimensions `batch` before the last two: the tensor itself, or a copy if its
/// matrices do not lie at equal distances.
fn batched<I: TensorInput>(
    x: I,
    batch: &[usize],
) -> Result<impl DeviceOp<Output = Matrices<I>> + use<I>> {
    let rank = x.layout().shape().len();
    let matrix = x.layout().shape()[rank - 2..].iter().copied();
    let shape: Dims = batch.iter().copied().chain(matrix).collect();
    let x = WithLayout::broadcast(x, &shape)?;
    let matrices = match strides(x.layout()) {
        Some(strides) => Either::Left(value(Matrices { tensor: Contiguous::Original(x), strides })),
        None => Either::Right(dup(x).map(|copy| Matrices {
            strides: by_rows(copy.shape()),
            tensor: Contiguous::Copied(copy),
        })),
    };
    Ok(matrices.into_op())
}

/// Returns the distances of the matrices, of their rows and of their columns, if the matrices lie at equal distances.
fn strides(layout: &Layout) -> Option<[usize; 3]> {
    let [batch @ .., _, _] = layout.shape() else { return None };
    let [of_batch @ .., rows, columns] = layout.strides() else { return None };
    match merge_dims(batch, [of_batch])[..] {
        [] => Some([0, *rows, *columns]),
        [(_, [distance])] => Some([distance, *rows, *columns]),
        _ => None,
    }
}
