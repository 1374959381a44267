//! `softmax` along a dimension.

use cuda_async::{DeviceOp, defer, kernel::launch, ops::Either, value};
use cuda_core::LaunchConfig;

use crate::{
    argument::{Read, Written},
    element::{DType, Float, FloatKernels, kernel},
    forms::{TensorInput, WithLayout},
    operations::{
        copy::{self, contiguous},
        create::allocate,
        reduce::rows_config,
    },
    shape::{Dims, Layout, of_operation},
    tensor::Tensor,
};

/// The maximum number of threads for a row that stays in registers. Longer rows are read twice, which is faster than
/// more threads on an H200.
const MAX_THREADS: usize = 512;

/// The maximum number of elements of a row that a thread keeps in registers.
const fn max_kept<T: DType>() -> usize {
    if size_of::<T::Stored>() == 8 { 16 } else { 32 }
}

/// Returns the kernel for rows of `n` elements that stay in registers, and the number of threads for each row. The
/// kernels differ in the number of elements that a thread keeps. The choice is the fastest on an H200.
fn in_registers<T: DType>(n: usize) -> (&'static str, usize) {
    const WARP: usize = 32;
    let longest_of_16 = if T::HALF { 512 } else { 4096 };
    let (kept, name) = match n {
        ..=256 => (8, "softmax_8"),
        _ if n <= longest_of_16 || max_kept::<T>() == 16 => (16, "softmax_16"),
        _ => (32, "softmax_32"),
    };
    (name, n.div_ceil(kept).next_multiple_of(WARP).max(WARP))
}

/// Returns the number of threads for each row in `softmax_long`, the fastest on an H200.
const fn long_threads<T: DType>() -> u32 {
    if T::HALF { 512 } else { 1024 }
}

/// Computes the softmax along dimension `dim`.
pub(crate) fn softmax<I>(x: I, dim: usize) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput<Element: Float>,
{
    defer(move || {
        let n = of_operation("softmax", x.layout().size(dim))?;
        let last = contiguous(WithLayout::move_dim_to_end(x, dim)?);
        Ok(last.then(move |x| {
            let layout = Layout::contiguous(x.layout().shape())?;
            let rank = layout.shape().len();
            let back: Dims = (0..dim).chain([rank - 1]).chain(dim..rank - 1).collect();
            let rows = layout.len() / n.max(1);
            Ok(allocate(layout)
                .then(move |y| softmax_of_rows(x, y, rows, n))
                .try_map(move |y| y.permute(&back))
                .then(in_row_major_order))
        }))
    })
}

/// Writes the softmax of each of the `rows` rows of x to y. Both are contiguous and have `rows * n` elements.
fn softmax_of_rows<I: TensorInput<Element: Float>>(
    x: I,
    y: Tensor<I::Element>,
    rows: usize,
    n: usize,
) -> impl DeviceOp<Output = Tensor<I::Element>> {
    // Without rows nothing is computed. A length of 0 selects a kernel that takes any length as u32.
    let n = if rows == 0 { 0 } else { n };
    let long = n > max_kept::<I::Element>() * MAX_THREADS;
    let (short, threads_per_row) = in_registers::<I::Element>(n);
    let name = if long { "softmax_long" } else { short };
    kernel::<I::Element>(I::Element::softmax(), name).then(move |kernel| {
        let (x, y, pack) = (Read(x), Written(y), pack::<I::Element>(n));
        // SAFETY: reads and writes `rows * n` elements, all of both tensors.
        unsafe {
            if long {
                let blocks = u32::try_from(rows).unwrap_or(u32::MAX);
                let config = LaunchConfig::new(blocks, long_threads::<I::Element>());
                Either::Left(launch(&kernel, config, (x, y, n as u64, pack)))
            } else {
                let config = rows_config(rows, threads_per_row);
                Either::Right(launch(&kernel, config, (x, y, rows as u64, n as u32, pack)))
            }
        }
    })
}

/// Returns the number of elements in a pack of 16 bytes, or 1 if a row of `n` elements does not divide into packs.
fn pack<T: DType>(n: usize) -> u32 {
    let lanes = 16 / size_of::<T::Stored>();
    if n.is_multiple_of(lanes) { lanes as u32 } else { 1 }
}

/// Gives the tensor itself, or a copy if its dimensions have another order.
fn in_row_major_order<T: DType>(y: Tensor<T>) -> impl DeviceOp<Output = Tensor<T>> {
    defer(
        move || {
            if y.is_contiguous() { Either::Left(value(y)) } else { Either::Right(copy::dup(y)) }
        },
    )
}
