//! `to_device`: a tensor on another device.

use cuda_async::{DeviceOp, IntoDeviceOp, defer, memory};
use cuda_core::Device;

use crate::{
    forms::{IntoTensor, TensorInput},
    operations::{copy::contiguous, host::Elements},
    shape::layout::Layout,
    tensor::Tensor,
};

/// Copies a tensor to `device`, in row-major order, as [`memory::to_device`](cuda_async::memory::to_device) copies a
/// buffer. The operation may run on any device.
///
/// ```
/// use cuda_async::{open_blocking, cuda_cpu::CpuProvider, prelude::*};
/// use cuda_tensor::{Tensor, TensorOps};
/// let (first, second) = (open_blocking("cpu")?, Device::open(&CpuProvider::default(), 0)?);
/// let x = Tensor::from_host(vec![1, 2, 3, 4], [2, 2]).on(&first).sync()?;
/// let there = cuda_tensor::to_device(x.transpose(0, 1)?, &second).sync()?;
/// assert!(*there.device() == second);
/// assert_eq!(there.to_host_vec().on(&second).sync()?, [1, 3, 2, 4]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// The errors of [`memory::to_device`](cuda_async::memory::to_device).
pub fn to_device<'a, I: IntoTensor<Form: 'a>>(
    x: I,
    device: &Device,
) -> impl DeviceOp<Output = Tensor<I::Element>> + use<'a, I> {
    let device = device.clone();
    x.into_tensor().into_op().then(move |x| copy_to(x, device))
}

fn copy_to<'a, I: TensorInput + 'a>(
    x: I,
    device: Device,
) -> impl DeviceOp<Output = Tensor<I::Element>> + use<'a, I> {
    defer(move || {
        let layout = Layout::contiguous(x.layout().shape())?;
        let from = x.whole().device().clone();
        let elements = contiguous(x).try_map(Elements::of).on(&from);
        let copied = elements.then(move |elements| memory::to_device(elements, &device));
        Ok(copied.map(move |buffer| Tensor::of(buffer, layout)))
    })
}
