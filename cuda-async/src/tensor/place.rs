//! `argmax`, `argmin`: the places of the largest and smallest elements.

use crate::{
    DeviceOp, defer,
    kernel::launch,
    ops::Either,
    tensor::{
        argument::{Kept, Read, Written},
        copying::dense,
        create::fresh,
        forms::{Relaid, TensorInput},
        kernels::{Kernels, kernel},
        layout::Layout,
        reduce::{CHUNK, across, for_rows, nothing, without},
        tensor::Tensor,
    },
    value,
};

/// The end of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Max,
    Min,
}

/// The places of the largest or smallest elements along dimension `dim`.
pub(super) fn place<I: TensorInput>(
    x: I,
    end: End,
    dim: usize,
) -> impl DeviceOp<Output = Tensor<u64>> {
    defer(move || {
        let (n, layout) = (x.layout().size(dim)?, without(x.layout(), dim)?);
        let [name, finish] = match end {
            End::Max => ["argmax", "argmax_finish"],
            End::Min => ["argmin", "argmin_finish"],
        };
        if n == 0 {
            return Err(nothing(name));
        }
        // The kernels take rows.
        let rows = Rows { rows: layout.len(), n, chunks: n.div_ceil(CHUNK) };
        let dense = dense(Relaid::last(x, dim)?);
        Ok(dense.then(move |x| {
            rows.places_in_chunks(x, name).then(move |(x, places)| match rows.chunks {
                1 => Either::Left(value(Tensor::of(places.into_buffer(), layout))),
                _ => Either::Right(rows.place_of_all(x, places, finish, layout)),
            })
        }))
    })
}

#[derive(Debug, Clone, Copy)]
struct Rows {
    rows: usize,
    n: usize,
    chunks: usize,
}

impl Rows {
    /// The place in its row of the winner of each chunk.
    fn places_in_chunks<I: TensorInput>(
        self,
        x: I,
        name: &'static str,
    ) -> impl DeviceOp<Output = (I, Tensor<u64>)> {
        let Self { rows, n, chunks } = self;
        defer(move || {
            let places = fresh::<u64>(Layout::dense([rows, chunks])?);
            Ok(places.then(move |places| {
                kernel(I::Element::fold(), name).then(move |kernel| {
                    let [rows_, n_, chunk, chunks_] = [rows, n, CHUNK, chunks].map(|it| it as u64);
                    let args = (Kept(x), Written(places), rows_, n_, chunk, chunks_);
                    let config = for_rows(rows * chunks, across(rows * chunks, CHUNK.min(n)));
                    // SAFETY: reads `rows * n` elements, all of x, and writes `rows * chunks` places, all of them.
                    unsafe { launch(&kernel, config, args) }
                })
            }))
        })
    }

    /// The winner of the winners of each row.
    fn place_of_all<I: TensorInput>(
        self,
        x: I,
        places: Tensor<u64>,
        name: &'static str,
        layout: Layout,
    ) -> impl DeviceOp<Output = Tensor<u64>> {
        let Self { rows, n, chunks } = self;
        fresh::<u64>(layout).then(move |y| {
            kernel(I::Element::fold(), name).then(move |kernel| {
                let [rows_, n_, chunks_] = [rows, n, chunks].map(|it| it as u64);
                let args = (Read(x), Read(places), Written(y), rows_, n_, chunks_);
                // SAFETY: reads `rows * chunks` places, which are below n, and elements of x at these places. Writes a place
                // for each row.
                unsafe { launch(&kernel, for_rows(rows, across(rows, chunks)), args) }
            })
        })
    }
}
