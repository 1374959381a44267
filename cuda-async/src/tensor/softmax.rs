//! `softmax` along a dimension.

use cuda_core::LaunchConfig;

use crate::{
    DeviceOp, defer,
    kernel::launch,
    ops::Either,
    tensor::{
        argument::{Read, Written},
        copying::dense,
        create::fresh,
        dtype::{DType, Float},
        forms::{Relaid, TensorInput},
        kernels::{FloatKernels, kernel},
        layout::Layout,
        reduce::for_rows,
        shape::Dims,
        tensor::Tensor,
    },
};

/// The elements of a row that a thread of `softmax` keeps in registers.
const KEPT: usize = 16;

/// The threads of a row in `softmax_long`.
const LONG_BLOCK: u32 = 1024;

/// Softmax along dimension `dim`.
pub(super) fn softmax<I>(x: I, dim: usize) -> impl DeviceOp<Output = Tensor<I::Element>>
where
    I: TensorInput<Element: Float>,
{
    defer(move || {
        let n = x.layout().size(dim)?;
        let last = dense(Relaid::last(x, dim)?);
        Ok(last.then(move |x| {
            let layout = Layout::dense(x.layout().shape())?;
            let rank = layout.shape().len();
            let back: Dims = (0..dim).chain([rank - 1]).chain(dim..rank - 1).collect();
            let rows = layout.len() / n.max(1);
            Ok(fresh(layout)
                .then(move |y| {
                    let long = n > KEPT * LONG_BLOCK as usize && rows > 0;
                    let name = if long { "softmax_long" } else { "softmax" };
                    kernel(I::Element::softmax(), name).then(move |kernel| {
                        let (x, y, rows_) = (Read(x), Written(y), rows as u64);
                        // SAFETY: reads and writes `rows * n` elements, all of both tensors.
                        unsafe {
                            if long {
                                let blocks = u32::try_from(rows).unwrap_or(u32::MAX);
                                let config = LaunchConfig::new(blocks, LONG_BLOCK);
                                let args = (x, y, n as u64, pack::<I::Element>(n));
                                Either::Left(launch(&kernel, config, args))
                            } else {
                                let across = n.div_ceil(KEPT).next_power_of_two();
                                let config = for_rows(rows, across.clamp(32, 1024));
                                let args = (x, y, rows_, n as u32, pack::<I::Element>(n));
                                Either::Right(launch(&kernel, config, args))
                            }
                        }
                    })
                })
                .try_map(move |y| y.permute(&back)))
        }))
    })
}

/// The elements of a pack of 16 bytes if rows of `n` elements are whole packs, else 1.
fn pack<T: DType>(n: usize) -> u32 {
    let lanes = 16 / size_of::<T::Stored>();
    if n.is_multiple_of(lanes) { lanes as u32 } else { 1 }
}
