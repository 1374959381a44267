//! Matrix products with cuBLAS and cuBLASLt (feature `cudarc`).

use std::sync::Arc;

use cuda_async::{
    DeviceOp, IntoDeviceOp, defer, memory::uninitialized, ops::Either, value, with_context,
};
use cuda_core::{Access, Error, ForeignCall, Result};

use crate::{
    element::dtype::{DType, Float},
    forms::TensorInput,
    libraries::{
        cublas::{Blas, CUBLAS, Gemm, Matrix, Scalar, WORKSPACE_BYTES},
        cublaslt::{self, BlasLt, CUBLASLT, Function},
        is_enabled,
    },
    operations::{
        copy::{Contiguous, dup},
        product::operands::{Activation, Epilogue, Matrices, Product, Sizes, by_rows},
    },
    tensor::Tensor,
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
            let is_inexact = *activation == Activation::GeluTanh && size_of::<A::Element>() == 8;
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
                    // SAFETY: the commands use only the memory of the call: the matrices lie at their strides inside of
                    // it, and the result and the scratch memory are owned here. No host memory outlives the call.
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
