//! Matrix products: `matmul`, `linear`.
//!
//! The kernels of this crate compute them on every device. With the feature `cudarc`, GPUs of this process use cuBLAS
//! and cuBLASLt where they are installed.

use bytemuck::{Pod, Zeroable};
use cuda_async::{
    DeviceOp, IntoDeviceOp, defer,
    kernel::{ByValue, launch},
    ops::Either,
    value,
};
use cuda_core::{Error, ExpectedShape, LaunchConfig, Result};

use crate::{
    argument::{Read, Written},
    element::{Float, FloatKernels, kernel},
    forms::{TensorInput, WithLayout},
    operations::{
        copy::{Contiguous, contiguous, dup},
        create::allocate,
    },
    shape::{Dims, Layout, broadcast_shape, merge_dims, of_operation, shape_error},
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

/// A batch of products `a b`, each with the same epilogue.
struct Product<A, B, C>
where
    A: TensorInput<Element: Float>,
    B: TensorInput<Element = A::Element>,
{
    a: Matrices<A>,
    b: Matrices<B>,
    epilogue: Epilogue<C>,
    /// The tensor that receives the products, in row-major order.
    result: Tensor<A::Element>,
    sizes: Sizes,
}

/// The number of products, and the sizes of their matrices: `m x k` and `k x n`.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
}

/// The matrices of one side of the products.
struct Matrices<I: TensorInput> {
    tensor: Contiguous<WithLayout<I>>,
    /// The distances of the matrices, of their rows and of their columns, in elements.
    strides: [usize; 3],
}

/// The step after the products.
struct Epilogue<C> {
    /// A bias of each column.
    bias: Option<C>,
    activation: Activation,
}

/// Returns the distances of the matrices, of their rows and of their columns, in a contiguous tensor.
fn by_rows(shape: &[usize]) -> [usize; 3] {
    match shape {
        [.., rows, columns] => [rows * columns, *columns, 1],
        _ => [0, 0, 1],
    }
}

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
    fn by_kernels(self) -> impl DeviceOp<Output = Tensor<A::Element>> {
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

/// Matrix products with cuBLAS and cuBLASLt.
#[cfg(feature = "cudarc")]
mod library {
    use std::sync::Arc;

    use cuda_async::{memory::uninitialized, with_context};
    use cuda_core::{Access, ForeignCall};

    use super::*;
    use crate::{
        element::DType,
        libraries::{
            cublas::{Blas, CUBLAS, Gemm, Matrix, Scalar, WORKSPACE_BYTES},
            cublaslt::{self, BlasLt, CUBLASLT, Function},
            is_enabled,
        },
    };

    /// A library for products.
    enum Library {
        /// For plain products.
        Blas(Arc<Blas>),
        /// For products with a bias or an activation.
        BlasLt(Arc<BlasLt>),
    }

    impl<A, B, C> Product<A, B, C>
    where
        A: TensorInput<Element: Float>,
        B: TensorInput<Element = A::Element>,
        C: TensorInput<Element = A::Element>,
    {
        /// Computes the products with cuBLAS or cuBLASLt, or with the kernels of this crate if that is not possible.
        pub(super) fn by_library(self) -> impl DeviceOp<Output = Tensor<A::Element>> {
            defer(move || {
                let Epilogue { bias, activation } = &self.epilogue;
                let has_epilogue = bias.is_some() || *activation != Activation::Identity;
                // cuBLASLt computes this function of f64 with less precision than f64 has.
                let is_inexact =
                    *activation == Activation::GeluTanh && size_of::<A::Element>() == 8;
                if !is_enabled() || !fits(self.sizes) || is_inexact {
                    return Either::Left(self.by_kernels());
                }
                let library = if has_epilogue {
                    Either::Left(CUBLASLT.of(|gpu| gpu).map(|found| found.map(Library::BlasLt)))
                } else {
                    Either::Right(CUBLAS.of(|gpu| gpu).map(|found| found.map(Library::Blas)))
                };
                Either::Right(library.into_op().then(move |library| match library {
                    Some(library) => Either::Left(self.with(library)),
                    None => Either::Right(self.by_kernels()),
                }))
            })
        }

        /// Computes the products with this library. Copies the matrices that it cannot take.
        fn with(self, library: Library) -> impl DeviceOp<Output = Tensor<A::Element>> {
            let Self { a, b, epilogue, result, sizes } = self;
            let Sizes { batch, m, n, k } = sizes;
            described(a, m, k).then(move |(a, of_a)| {
                described(b, k, n).then(move |(b, of_b)| {
                    let scalar = Scalar::named(<A::Element as DType>::NAME);
                    let gemm = scalar.zip(of_a).zip(of_b).map(|((scalar, a), b)| {
                        let [batch, m, n, k] = [batch, m, n, k].map(|size| size as i32);
                        Gemm { scalar, batch, m, n, k, a, b }
                    });
                    let product = Product { a, b, epilogue, result, sizes };
                    match gemm {
                        Some(gemm) => Either::Left(product.call(library, gemm)),
                        None => Either::Right(product.by_kernels()),
                    }
                })
            })
        }

        /// Calls the library. The kernels of this crate compute the products if it has no algorithm for them.
        fn call(self, library: Library, gemm: Gemm) -> impl DeviceOp<Output = Tensor<A::Element>> {
            uninitialized::<u8>(WORKSPACE_BYTES).then(move |scratch| {
                with_context(move |cx| {
                    let Self { a, b, epilogue, result, .. } = &self;
                    let submitted = cx.enqueue(|stream| -> Result<bool> {
                        let call = ForeignCall::new()
                            .uses(a.tensor.memory()?, Access::Read)
                            .uses(b.tensor.memory()?, Access::Read)
                            .uses(result.memory()?, Access::Write)
                            .uses(scratch.as_slice(), Access::Write);
                        let call = match &epilogue.bias {
                            Some(bias) => call.uses(bias.memory()?, Access::Read),
                            None => call,
                        };
                        let mut is_done = true;
                        // SAFETY: the commands use only the memory of the call: the matrices lie at their strides
                        // inside of it, and the result and the scratch memory are owned here. No host memory outlives
                        // the call.
                        unsafe {
                            call.submit(stream, |raw, addresses| match &library {
                                Library::Blas(blas) => blas.gemm(&gemm, raw, addresses),
                                Library::BlasLt(blas) => {
                                    let epilogue = described_epilogue(epilogue);
                                    is_done = blas.gemm(&gemm, epilogue, raw, addresses)?;
                                    Ok(())
                                }
                            })
                        }?;
                        Ok(is_done)
                    })?;
                    Ok::<_, Error>(match submitted {
                        true => Either::Left(value(self.result)),
                        false => Either::Right(self.by_kernels()),
                    })
                })
            })
        }
    }

    /// Returns whether the libraries take products of these sizes.
    fn fits(Sizes { batch, m, n, k }: Sizes) -> bool {
        [batch, m, n, k].iter().all(|size| (1..=i32::MAX as usize).contains(size))
    }

    fn described_epilogue<C>(epilogue: &Epilogue<C>) -> cublaslt::Epilogue {
        let function = match epilogue.activation {
            Activation::Identity => Function::Identity,
            Activation::Relu => Function::Relu,
            Activation::GeluTanh => Function::Gelu,
        };
        cublaslt::Epilogue { has_bias: epilogue.bias.is_some(), function }
    }

    /// Gives the matrices and their description for a library. Copies them first if a library cannot take them.
    fn described<I: TensorInput>(
        matrices: Matrices<I>,
        rows: usize,
        columns: usize,
    ) -> impl DeviceOp<Output = (Matrices<I>, Option<Matrix>)> {
        defer(move || match matrix(matrices.strides, rows, columns) {
            Some(matrix) => Either::Left(value((matrices, Some(matrix)))),
            None => Either::Right(dup(matrices.tensor).map(move |copy| {
                let strides = by_rows(copy.shape());
                let copied = Matrices { tensor: Contiguous::Copied(copy), strides };
                (copied, matrix(strides, rows, columns))
            })),
        })
    }

    /// Returns the description of matrices at these distances, if a library can take them.
    fn matrix([batch, row, column]: [usize; 3], rows: usize, columns: usize) -> Option<Matrix> {
        let leading = |by_columns, distance: usize, count: usize, length: usize| {
            // The distance of a single row or column does not matter.
            let distance = if count == 1 { distance.max(length) } else { distance };
            let leading = i32::try_from(distance).ok().filter(|_| distance >= length)?;
            Some(Matrix { by_columns, leading, batch: i64::try_from(batch).ok()? })
        };
        if column == 1 || columns == 1 {
            leading(false, row, rows, columns)
        } else if row == 1 || rows == 1 {
            leading(true, column, columns, rows)
        } else {
            None
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn matrices_by_rows_and_by_columns_are_described() {
            let leading = |strides, rows, columns| {
                matrix(strides, rows, columns).map(|matrix| (matrix.by_columns, matrix.leading))
            };
            assert_eq!(leading([0, 5, 1], 3, 5), Some((false, 5)));
            assert_eq!(leading([0, 8, 1], 3, 5), Some((false, 8)));
            assert_eq!(leading([0, 1, 3], 3, 5), Some((true, 3)));
            assert_eq!(leading([0, 0, 1], 1, 5), Some((false, 5)));
            assert_eq!(leading([0, 7, 0], 3, 1), Some((false, 7)));
            // Broadcast, and with gaps in both directions.
            assert_eq!(leading([0, 0, 1], 3, 5), None);
            assert_eq!(leading([0, 10, 2], 3, 5), None);
        }
    }
}
