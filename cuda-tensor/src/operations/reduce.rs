//! Reductions: `sum`, `product`, `max`, `min`.

use std::marker::PhantomData;

use cuda_async::{DeviceOp, IntoDeviceOp, defer, kernel::launch, ops::Either};
use cuda_core::{Error, LaunchConfig, Limit, Quantity, Result, protocol::MAX_GRID};

use crate::{
    argument::{MAX_BLOCKS, Read, Written},
    element::{DType, Float, Kernels, kernel},
    forms::{TensorInput, TensorOutput},
    operations::{
        copy::{self, Contiguous, contiguous},
        create::allocate,
        elementwise::{self, Binary},
    },
    shape::{Layout, of_operation},
    tensor::Tensor,
};

/// The reduction of a dimension to one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    Sum,
    Product,
    Max,
    Min,
}

impl Reduction {
    const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Max => "max",
            Self::Min => "min",
        }
    }
}

/// The number of threads that reduce a chunk of a row that has several chunks.
const CHUNK_THREADS: usize = 512;

/// The maximum number of bytes that a thread loads before it combines them: `LOADS` packs of 16 bytes in
/// `kernels/reduce.cuh`.
const LOADED: usize = 8 * 16;

/// Returns the number of elements of a row that a row of threads reduces in one launch. Longer rows are split into
/// chunks, at most 256 in all rows together. More than 256 rows have one chunk each. The number depends only on the
/// shape, so the order of a sum is the same on every device.
pub(crate) fn chunk_of_rows(rows: usize, n: usize) -> usize {
    // The fastest number on an H200, with `CHUNK_THREADS`.
    const CHUNKS: usize = 1 << 8;
    const SHORTEST: usize = 1 << 13;
    // The kernels count the elements of a chunk in 32 bits.
    const LONGEST: usize = 1 << 31;
    let chunks = (CHUNKS / rows.max(1)).max(1);
    n.div_ceil(chunks).next_multiple_of(CHUNK_THREADS).clamp(SHORTEST, LONGEST)
}

/// The number of rows from which one warp for each row keeps a device busy.
pub(crate) const MANY_ROWS: usize = 1 << 10;

/// The number of chunks of columns that keep a device busy, each of columns of `COLUMN_BYTES` bytes. Both are the
/// fastest numbers on an H200.
const COLUMN_CHUNKS: usize = 1 << 15;
const COLUMN_BYTES: usize = 8;

/// A contiguous tensor as `[outer, n, inner]`, of which `n` is reduced.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    outer: usize,
    n: usize,
    inner: usize,
    /// The number of elements that one launch reduces to one.
    chunk: usize,
}

impl Sizes {
    /// `bytes` is the size of an element.
    fn new(outer: usize, n: usize, inner: usize, bytes: usize) -> Self {
        let chunk = if inner == 1 {
            chunk_of_rows(outer, n)
        } else {
            let columns =
                outer.saturating_mul(inner).saturating_mul(bytes).div_ceil(COLUMN_BYTES).max(1);
            let chunks = COLUMN_CHUNKS.div_ceil(columns);
            // With few long columns, each thread of both launches reduces about as many elements in sequence.
            n.div_ceil(chunks).max(64).max(n.isqrt())
        };
        Self { outer, n, inner, chunk }
    }

    fn of<T: DType>(shape: &[usize], dim: usize) -> Self {
        let product = |sizes: &[usize]| sizes.iter().product();
        let (outer, inner) = (product(&shape[..dim]), product(&shape[dim + 1..]));
        Self::new(outer, shape[dim], inner, size_of::<T::Stored>())
    }

    /// Returns the number of chunks of the dimension. An empty dimension has one empty chunk.
    fn chunks(self) -> usize {
        self.n.div_ceil(self.chunk).max(1)
    }

    /// Returns whether there are many rows of few elements. One thread for each, as for columns, is faster than a warp.
    fn has_short_rows(self) -> bool {
        const SHORT: usize = 16;
        const MANY: usize = 32;
        self.n <= SHORT && self.outer >= MANY
    }

    /// Returns the sizes for the reduction of the chunks' results.
    fn of_chunks(self) -> Self {
        Self { n: self.chunks(), chunk: self.chunks(), ..self }
    }
}

/// Returns the configuration for `rows` rows of `threads_per_row` threads each. `threads_per_row` is a multiple of 32.
pub(crate) fn rows_config(rows: usize, threads_per_row: usize) -> LaunchConfig {
    // With small blocks, some blocks load while others combine their results.
    const USUAL_THREADS: usize = 64;
    const MAX_THREADS: usize = 1024;
    let down = (USUAL_THREADS / threads_per_row).max(rows.div_ceil(MAX_GRID[0] as usize));
    let down = down.clamp(1, MAX_THREADS / threads_per_row);
    // The launch refuses more than `MAX_GRID[0]` blocks.
    let blocks = u32::try_from(rows.div_ceil(down).max(1)).unwrap_or(u32::MAX);
    LaunchConfig::new(blocks, 1).block(threads_per_row as u32, down as u32, 1)
}

/// Returns the configuration for the reduction of `parts` chunks of `len` elements of a column each.
fn columns_config(parts: usize, len: usize) -> LaunchConfig {
    // `COLUMN_PACKS` and `COLUMN_ROWS` in `kernels/reduce.cuh`.
    const PACKS: u32 = 32;
    const ROWS: u32 = 8;
    // One thread reads a short chunk faster than several combine their results.
    let (packs, rows) = if len < 4 * ROWS as usize { (PACKS * ROWS, 1) } else { (PACKS, ROWS) };
    let blocks = parts.div_ceil(packs as usize).clamp(1, MAX_BLOCKS);
    LaunchConfig::new(blocks as u32, 1).block(packs, rows, 1)
}

/// Returns the number of threads that reduce a chunk of `bytes` bytes. Each of the `rows` rows has `chunks` chunks.
/// With at least [`MANY_ROWS`] rows, the threads load the whole chunk at once, up to 128 threads of [`LOADED`] bytes.
/// The other values are the fastest ones on an H200.
const fn threads_per_chunk(rows: usize, bytes: usize, chunks: usize) -> usize {
    match (rows, bytes) {
        _ if chunks > 1 => CHUNK_THREADS,
        (MANY_ROWS.., _) => match bytes.div_ceil(LOADED).next_power_of_two() {
            ..32 => 32,
            threads @ 32..128 => threads,
            _ => 128,
        },
        (_, ..=1024) => 64,
        (_, ..=16_384) => 256,
        _ => 1024,
    }
}

/// Returns the contiguous layout of the shape without dimension `dim`.
pub(crate) fn without_dim(layout: &Layout, dim: usize) -> Result<Layout> {
    let mut shape = layout.shape().to_vec();
    layout.size(dim)?;
    shape.remove(dim);
    Layout::contiguous(shape)
}

pub(crate) fn empty_dimension(called: &'static str) -> Error {
    let tensor = format!("`{called}` of a tensor");
    Error::out_of_range(tensor, Quantity::Size, 0, Limit::AtLeast(1))
}

/// Reduces dimension `dim`. `called` is the operation of the program.
pub(crate) fn reduce_dim<I>(
    x: I,
    (fold, dim, called): (Reduction, usize, &'static str),
) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput,
{
    contiguous(x).then(move |x| {
        let layout = of_operation(called, without_dim(x.layout(), dim))?;
        let sizes = Sizes::of::<I::Element>(x.layout().shape(), dim);
        reduce_contiguous(x, fold, sizes, layout, called)
    })
}

/// Reduces all elements to one.
pub(crate) fn reduce_all<I: TensorInput>(
    x: I,
    fold: Reduction,
) -> impl DeviceOp<Output = Tensor<I::Element>> {
    contiguous(x).then(move |x| {
        let sizes = Sizes::new(1, x.layout().len(), 1, size_of::<<I::Element as DType>::Stored>());
        reduce_contiguous(x, fold, sizes, Layout::contiguous(())?, fold.name())
    })
}

/// Computes the mean of all elements, or along a dimension.
pub(crate) fn mean<I>(x: I, dim: Option<usize>) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput<Element: Float>,
{
    defer(move || {
        let n = dim.map_or(Ok(x.layout().len()), |dim| x.layout().size(dim));
        let n = of_operation("mean_dim", n)? as f64;
        Ok(if I::Element::HALF {
            let mean = copy::cast::<f32, _>(x).then(move |x| divided_sum(x, dim, n as f32));
            Either::Left(mean.then(copy::cast))
        } else {
            Either::Right(divided_sum(x, dim, I::Element::of(n)))
        })
    })
}

fn divided_sum<I>(
    x: I,
    dim: Option<usize>,
    n: I::Element,
) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput<Element: Float>,
{
    let sum = match dim {
        Some(dim) => Either::Left(reduce_dim(x, (Reduction::Sum, dim, "mean_dim"))),
        None => Either::Right(reduce_all(x, Reduction::Sum)),
    };
    sum.into_op().then(move |sum| elementwise::map_scalar(sum, (Binary::Div, n, false)))
}

fn reduce_contiguous<I: TensorInput>(
    x: Contiguous<I>,
    fold: Reduction,
    sizes: Sizes,
    layout: Layout,
    called: &'static str,
) -> Result<impl IntoDeviceOp<Output = Tensor<I::Element>> + Send> {
    if sizes.n == 0 && matches!(fold, Reduction::Max | Reduction::Min) {
        return Err(empty_dimension(called));
    }
    if sizes.chunks() <= 1 {
        let whole = allocate(layout).then(move |y| launch_pass(x, y, fold, sizes, Pass::WHOLE));
        return Ok(Either::Left(whole));
    }
    // Partial sums and products of f16 and bf16 are f32.
    let wide = I::Element::HALF && matches!(fold, Reduction::Sum | Reduction::Product);
    Ok(Either::Right(if wide {
        Either::Left(in_two_passes(x, fold, sizes, layout, Pass::PARTIAL, Pass::FINISH))
    } else {
        Either::Right(in_two_passes(x, fold, sizes, layout, Pass::WHOLE, Pass::WHOLE))
    }))
}

/// Reduces the chunks, and then their results, of type `P`.
fn in_two_passes<I: TensorInput, P: DType>(
    x: Contiguous<I>,
    fold: Reduction,
    sizes: Sizes,
    layout: Layout,
    first: Pass<I::Element, I::Element, P>,
    second: Pass<I::Element, P, I::Element>,
) -> impl DeviceOp<Output = Tensor<I::Element>> {
    defer(move || {
        let partial = Layout::contiguous([sizes.outer, sizes.chunks(), sizes.inner])?;
        Ok(allocate::<P>(partial)
            .then(move |partial| launch_pass(x, partial, fold, sizes, first))
            .then(move |partial| {
                allocate(layout)
                    .then(move |y| launch_pass(partial, y, fold, sizes.of_chunks(), second))
            }))
    })
}

/// A kernel in the module of `T` that reads elements of `X` and writes elements of `Y`.
#[derive(Clone, Copy)]
struct Pass<T, X, Y> {
    suffix: &'static str,
    types: PhantomData<fn(T, X) -> Y>,
}

impl<T, X, Y> Pass<T, X, Y> {
    const fn new(suffix: &'static str) -> Self {
        Self { suffix, types: PhantomData }
    }
}

impl<T: DType> Pass<T, T, T> {
    const WHOLE: Self = Self::new("");
}

/// The kernels of f16 and bf16.
impl<T: DType> Pass<T, T, f32> {
    const PARTIAL: Self = Self::new("_partial");
}

impl<T: DType> Pass<T, f32, T> {
    const FINISH: Self = Self::new("_finish");
}

/// Reduces the chunks of x into y.
fn launch_pass<T, X, Y>(
    x: X,
    y: Y,
    fold: Reduction,
    sizes: Sizes,
    pass: Pass<T, X::Element, Y::Element>,
) -> impl DeviceOp<Output = Y>
where
    T: DType,
    X: TensorInput,
    Y: TensorOutput,
{
    let in_rows = sizes.inner == 1 && !sizes.has_short_rows();
    let family = if in_rows { "rows" } else { "columns" };
    kernel::<T>(T::fold(), format!("{}_{family}{}", fold.name(), pass.suffix)).then(move |kernel| {
        let Sizes { outer, n, inner, .. } = sizes;
        let (chunk, chunks) = (sizes.chunk as u64, sizes.chunks());
        let (x, y, n) = (Read(x), Written(y), n as u64);
        // SAFETY: reads `outer * n * inner` elements, all of x, and writes `outer * chunks * inner` ones, all of y.
        // `pass` states their types.
        unsafe {
            if in_rows {
                let rows = outer * chunks;
                let bytes = sizes.chunk.min(sizes.n) * size_of::<<X::Element as DType>::Stored>();
                let threads = threads_per_chunk(outer, bytes, chunks);
                let config = rows_config(rows, threads);
                let args = (x, y, outer as u64, n, chunk, chunks as u64);
                Either::Left(launch(&kernel, config, args))
            } else {
                let config = columns_config(outer * chunks * inner, sizes.chunk.min(sizes.n));
                let args = (x, y, outer as u64, n, inner as u64, chunk, chunks as u64);
                Either::Right(launch(&kernel, config, args))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_as_many_blocks_as_a_launch_allows() {
        const MAX: u32 = i32::MAX as u32;
        for rows in [1, 2, 3, MAX as usize * 2, MAX as usize * 2 + 1, 1 << 32, MAX as usize * 32] {
            let LaunchConfig { grid, block, .. } = rows_config(rows, 32);
            assert!(grid[0] <= MAX && block[0] * block[1] <= 1024, "{rows}: {grid:?} {block:?}");
            assert!(grid[0] as usize * block[1] as usize >= rows);
        }
    }
}
