//! `softmax` along a dimension.

use cuda_core::LaunchConfig;

use crate::{
    DeviceOp, defer,
    kernel::launch,
    tensor::{
        argument::{BLOCK, Read, Written},
        copying::dense,
        create::fresh,
        dtype::Float,
        forms::{Relaid, TensorInput},
        kernels::{FloatKernels, kernel},
        layout::Layout,
        reduce::for_rows,
        shape::Dims,
        tensor::Tensor,
    },
};

/// The elements of a row that a thread of `softmax` keeps in registers.
const KEPT: usize = 32;

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
                    let (name, config) = shape(rows, n);
                    kernel(I::Element::softmax(), name).then(move |kernel| {
                        let args = (Read(x), Written(y), rows as u64, n as u64);
                        // SAFETY: reads and writes `rows * n` elements, all of both tensors.
                        unsafe { launch(&kernel, config, args) }
                    })
                })
                .try_map(move |y| y.permute(&back)))
        }))
    })
}

/// The kernel for rows of `n` elements, and its launch.
fn shape(rows: usize, n: usize) -> (&'static str, LaunchConfig) {
    if n <= KEPT * BLOCK {
        return ("softmax", for_rows(rows, n));
    }
    let blocks = u32::try_from(rows).unwrap_or(u32::MAX);
    ("softmax_long", LaunchConfig::new(blocks, LONG_BLOCK))
}
