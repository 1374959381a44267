//! Reductions: `sum`, `product`, `max`, `min`.

use cuda_core::{Error, LaunchConfig, Result};

use crate::{
    DeviceOp, IntoDeviceOp, defer,
    kernel::launch,
    ops::Either,
    tensor::{
        argument::{BLOCK, Read, Written, for_elements},
        copying::{Dense, dense},
        create::fresh,
        dtype::DType,
        forms::{TensorInput, TensorOutput},
        kernels::{Kernels, kernel},
        layout::Layout,
        tensor::Tensor,
    },
};

/// The reduction of a dimension to one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    Sum,
    Product,
    Max,
    Min,
}

impl Fold {
    const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Max => "max",
            Self::Min => "min",
        }
    }
}

/// The largest number of elements that a row of threads folds in one launch. Longer rows are folded in chunks, so that
/// there are enough of them. It does not depend on the device: the order of a sum is the same everywhere.
pub(super) const CHUNK: usize = 1 << 12;

/// The number of rows that keep a device busy with a warp for each.
const MANY: usize = 1 << 10;

/// The number of threads that columns are to keep busy.
const COLUMNS: usize = 1 << 19;

/// A dense tensor as `[outer, n, inner]`, of which `n` is reduced.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    outer: usize,
    n: usize,
    inner: usize,
    /// The number of elements that one launch folds to one.
    chunk: usize,
}

impl Sizes {
    fn new(outer: usize, n: usize, inner: usize) -> Self {
        let chunk = if inner == 1 {
            CHUNK
        } else {
            let chunks = COLUMNS.div_ceil((outer * inner).max(1));
            n.div_ceil(chunks).max(64)
        };
        Self { outer, n, inner, chunk }
    }

    fn of(shape: &[usize], dim: usize) -> Self {
        let product = |sizes: &[usize]| sizes.iter().product();
        Self::new(product(&shape[..dim]), shape[dim], product(&shape[dim + 1..]))
    }

    /// The chunks of the dimension. An empty one has none, and its fold is that of one empty chunk.
    fn chunks(self) -> usize {
        self.n.div_ceil(self.chunk).max(1)
    }

    /// The fold of the results of the chunks.
    fn of_chunks(self) -> Self {
        Self { n: self.chunks(), chunk: self.chunks(), ..self }
    }
}

/// The launch of `rows` rows of `across` threads, a multiple of 32.
pub(super) fn for_rows(rows: usize, across: usize) -> LaunchConfig {
    let down = (BLOCK / across).max(1);
    // A grid has at most 2^31 - 1 blocks. More are an error of the launch.
    let blocks = u32::try_from(rows.div_ceil(down).max(1)).unwrap_or(u32::MAX);
    LaunchConfig::new(blocks, 1).block(across as u32, down as u32, 1)
}

/// The threads that fold a row of `n` elements. Many rows get a warp each, and few long ones a block.
pub(super) const fn across(rows: usize, n: usize) -> usize {
    match (rows, n) {
        (_, ..=256) | (MANY.., _) => 32,
        _ => 1024,
    }
}

/// The shape without dimension `dim`.
pub(super) fn without(layout: &Layout, dim: usize) -> Result<Layout> {
    let mut shape = layout.shape().to_vec();
    layout.size(dim)?;
    shape.remove(dim);
    Layout::dense(shape)
}

pub(super) fn nothing(operation: &'static str) -> Error {
    let detail = "it has no elements in that dimension, and so no largest or smallest one".into();
    Error::OutOfRange { what: format!("{operation} of a tensor").into(), detail }
}

/// Folds dimension `dim`.
pub(super) fn fold<I>(x: I, fold: Fold, dim: usize) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput,
{
    dense(x).then(move |x| {
        let layout = without(x.layout(), dim)?;
        let sizes = Sizes::of(x.layout().shape(), dim);
        folded(x, fold, sizes, layout)
    })
}

/// Folds all elements.
pub(super) fn fold_all<I: TensorInput>(
    x: I,
    fold: Fold,
) -> impl DeviceOp<Output = Tensor<I::Element>> {
    dense(x).then(move |x| {
        let sizes = Sizes::new(1, x.layout().len(), 1);
        folded(x, fold, sizes, Layout::dense(())?)
    })
}

fn folded<I: TensorInput>(
    x: Dense<I>,
    fold: Fold,
    sizes: Sizes,
    layout: Layout,
) -> Result<impl IntoDeviceOp<Output = Tensor<I::Element>> + Send> {
    if sizes.n == 0 && matches!(fold, Fold::Max | Fold::Min) {
        return Err(nothing(fold.name()));
    }
    if sizes.chunks() <= 1 {
        let whole =
            fresh(layout).then(move |y| launched::<I::Element, _, _>(x, y, fold, sizes, ""));
        return Ok(Either::Left(whole));
    }
    // Sums and products of f16 and bf16 have partial results of f32.
    let wide = I::Element::HALF && matches!(fold, Fold::Sum | Fold::Product);
    Ok(Either::Right(if wide {
        Either::Left(in_two::<I, f32>(x, fold, sizes, layout, ["_partial", "_finish"]))
    } else {
        Either::Right(in_two::<I, I::Element>(x, fold, sizes, layout, ["", ""]))
    }))
}

/// Folds the chunks, and then their results, of type `P`.
fn in_two<I: TensorInput, P: DType>(
    x: Dense<I>,
    fold: Fold,
    sizes: Sizes,
    layout: Layout,
    [first, second]: [&'static str; 2],
) -> impl DeviceOp<Output = Tensor<I::Element>> {
    defer(move || {
        let partial = Layout::dense([sizes.outer, sizes.chunks(), sizes.inner])?;
        Ok(fresh::<P>(partial)
            .then(move |partial| launched::<I::Element, _, _>(x, partial, fold, sizes, first))
            .then(move |partial| {
                fresh(layout).then(move |y| {
                    launched::<I::Element, _, _>(partial, y, fold, sizes.of_chunks(), second)
                })
            }))
    })
}

/// Folds the chunks of x into y, with a kernel of the type `T`.
fn launched<T, X, Y>(
    x: X,
    y: Y,
    fold: Fold,
    sizes: Sizes,
    suffix: &'static str,
) -> impl DeviceOp<Output = Y>
where
    T: DType,
    X: TensorInput,
    Y: TensorOutput,
{
    let family = if sizes.inner == 1 { "rows" } else { "columns" };
    kernel(T::fold(), format!("{}_{family}{suffix}", fold.name())).then(move |kernel| {
        let Sizes { outer, n, inner, .. } = sizes;
        let (chunk, chunks) = (sizes.chunk as u64, sizes.chunks());
        let (x, y, n) = (Read(x), Written(y), n as u64);
        // SAFETY: reads `outer * n * inner` elements, all of x, and writes `outer * chunks * inner` ones, all of y.
        unsafe {
            if inner == 1 {
                let rows = outer * chunks;
                let config = for_rows(rows, across(rows, sizes.chunk.min(sizes.n)));
                let args = (x, y, outer as u64, n, chunk, chunks as u64);
                Either::Left(launch(&kernel, config, args))
            } else {
                let config = for_elements(outer * chunks * inner);
                let args = (x, y, outer as u64, n, inner as u64, chunk, chunks as u64);
                Either::Right(launch(&kernel, config, args))
            }
        }
    })
}
