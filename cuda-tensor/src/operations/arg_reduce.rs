//! `argmax`, `argmin`: the indices of the largest and smallest elements.

use cuda_async::{DeviceOp, defer, kernel::launch, ops::Either, value};

use crate::{
    argument::{Read, Returned, Written},
    element::{Kernels, kernel},
    forms::{TensorInput, WithLayout},
    operations::{
        copy::contiguous,
        create::allocate,
        reduce::{MANY_ROWS, chunk_of_rows, empty_dimension, rows_config, without_dim},
    },
    shape::{Layout, of_operation},
    tensor::Tensor,
};

/// The extremum that is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extremum {
    Max,
    Min,
}

/// Gives the indices of the largest or smallest elements along dimension `dim`.
pub(crate) fn arg_reduce<I: TensorInput>(
    x: I,
    (end, dim): (Extremum, usize),
) -> impl DeviceOp<Output = Tensor<u64>> {
    defer(move || {
        let [name, finish] = match end {
            Extremum::Max => ["argmax", "argmax_finish"],
            Extremum::Min => ["argmin", "argmin_finish"],
        };
        let n = of_operation(name, x.layout().size(dim))?;
        let layout = without_dim(x.layout(), dim)?;
        if n == 0 {
            return Err(empty_dimension(name));
        }
        // The kernels reduce the last dimension.
        let chunk = chunk_of_rows(layout.len(), n);
        let rows = Rows { rows: layout.len(), n, chunk, chunks: n.div_ceil(chunk) };
        let contiguous = contiguous(WithLayout::move_dim_to_end(x, dim)?);
        Ok(contiguous.then(move |x| {
            rows.reduce_chunks(x, name).then(move |(x, places)| match rows.chunks {
                1 => Either::Left(value(Tensor::of(places.into_buffer(), layout))),
                _ => Either::Right(rows.reduce_chunk_indices(x, places, finish, layout)),
            })
        }))
    })
}

/// Returns the number of threads that search each chunk of `rows` rows. `n` is the length of a chunk. The values are
/// the fastest ones on an H200.
const fn threads_per_chunk(rows: usize, n: usize) -> usize {
    match (rows, n) {
        (_, ..=256) | (MANY_ROWS.., ..=8192) => 32,
        (MANY_ROWS.., ..=32_768) => 128,
        (MANY_ROWS.., _) | (_, ..=4096) => 256,
        _ => 512,
    }
}

#[derive(Debug, Clone, Copy)]
struct Rows {
    rows: usize,
    n: usize,
    chunk: usize,
    chunks: usize,
}

impl Rows {
    /// Gives the index, within its row, of the largest or smallest element of each chunk.
    fn reduce_chunks<I: TensorInput>(
        self,
        x: I,
        name: &'static str,
    ) -> impl DeviceOp<Output = (I, Tensor<u64>)> {
        let Self { rows, n, chunk, chunks } = self;
        defer(move || {
            let places = allocate::<u64>(Layout::contiguous([rows, chunks])?);
            Ok(places.then(move |places| {
                kernel::<I::Element>(I::Element::fold(), name).then(move |kernel| {
                    let [rows_, n_, chunk_, chunks_] =
                        [rows, n, chunk, chunks].map(|size| size as u64);
                    let args = (Returned(x), Written(places), rows_, n_, chunk_, chunks_);
                    let threads = threads_per_chunk(rows, chunk.min(n));
                    let config = rows_config(rows * chunks, threads);
                    // SAFETY: reads `rows * n` elements, all of x, and writes `rows * chunks` indices, all of them.
                    unsafe { launch(&kernel, config, args) }
                })
            }))
        })
    }

    /// Reduces the indices of the chunks to one index for each row.
    fn reduce_chunk_indices<I: TensorInput>(
        self,
        x: I,
        places: Tensor<u64>,
        name: &'static str,
        layout: Layout,
    ) -> impl DeviceOp<Output = Tensor<u64>> {
        let Self { rows, n, chunks, .. } = self;
        allocate::<u64>(layout).then(move |y| {
            kernel::<I::Element>(I::Element::fold(), name).then(move |kernel| {
                let [rows_, n_, chunks_] = [rows, n, chunks].map(|size| size as u64);
                let args = (Read(x), Read(places), Written(y), rows_, n_, chunks_);
                let threads = threads_per_chunk(rows, chunks);
                // SAFETY: reads `rows * chunks` indices, which are below n, and the elements of x at these indices.
                // Writes an index for each row.
                unsafe { launch(&kernel, rows_config(rows, threads), args) }
            })
        })
    }
}
