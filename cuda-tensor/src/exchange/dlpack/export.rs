//! `Tensor::into_dlpack`: exports tensors to other frameworks.

use std::{borrow::Borrow, ffi::c_void};

use cuda_async::{
    DeviceOp, ExecutionContext, defer, memory::BufferSource, ops::Either, value, with_context,
};
use cuda_core::{Device, DeviceBuffer, Result, Stream};

use super::{
    abi::{
        DL_CPU, DL_CUDA, DLDevice, DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY,
    },
    import::helper,
    managed::{ManagedTensor, data_type},
};
use crate::{
    element::DType,
    operations::transfer,
    shape::Layout,
    tensor::{SharedTensor, Tensor},
};

impl<T: DType> Tensor<T> {
    /// Exports the tensor as a DLPack tensor, for a consumer: another framework. Needs the feature `dlpack`.
    ///
    /// On a GPU of this process, the export copies nothing (`kDLCUDA`). Views keep their strides. A broadcast tensor is
    /// read-only for the consumer. Commands that the consumer enqueues later on the stream of the operation come after
    /// all work on the tensor. After `.await` or [`sync`](DeviceOp::sync), all work on it is complete, and the consumer
    /// may use any stream.
    ///
    /// The deleter never blocks. A thread of this library then frees the memory in the order of that stream, after the
    /// commands that the consumer has enqueued there.
    ///
    /// A tensor on any other device is copied to the host (`kDLCPU`), in row-major order.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps, dlpack::ManagedTensor};
    /// let managed = Tensor::full(7i64, [2, 3]).then(|x| x.into_dlpack()).sync()?;
    /// assert_eq!(managed.shape(), [2, 3]);
    /// let raw = managed.into_raw(); // the other framework calls its deleter
    /// // SAFETY: `raw` is valid and is used once.
    /// drop(unsafe { ManagedTensor::from_raw(raw) }?);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`](cuda_async::Error::Misuse) in a recording, or if a recording uses the memory;
    /// [`Error::NeedsHostData`](cuda_async::Error::NeedsHostData) in [`async_on`](DeviceOp::async_on) for a copy to the
    /// host; or an error of the device. The tensor is then dropped.
    pub fn into_dlpack(self) -> impl DeviceOp<Output = ManagedTensor> {
        export(self, 0)
    }
}

impl<T: DType> SharedTensor<T> {
    /// Exports the tensor as a DLPack tensor. Memory of a GPU is read-only for the consumer. Needs the feature
    /// `dlpack`.
    ///
    /// The order of the consumer's commands, the deleter and the copy to the host are as for
    /// [`Tensor::into_dlpack`](Tensor::into_dlpack).
    ///
    /// # Errors
    /// The errors of [`Tensor::into_dlpack`](Tensor::into_dlpack).
    pub fn into_dlpack(self) -> impl DeviceOp<Output = ManagedTensor> {
        export(self, DLPACK_FLAG_BITMASK_READ_ONLY)
    }
}

fn export<T, B>(tensor: Tensor<T, B>, flags: u64) -> impl DeviceOp<Output = ManagedTensor>
where
    T: DType,
    B: BufferSource<Element = T::Stored> + Borrow<DeviceBuffer<T::Stored>> + Sync + 'static,
{
    defer(move || match gpu(tensor.device()) {
        Some(device) => {
            Either::Left(with_context(move |cx| lend(&cx, tensor, device, flags).map(value)))
        }
        None => Either::Right(copy_to_host(tensor)),
    })
}

/// Returns the DLPack device of a GPU of this process. `None` for any other device.
fn gpu(device: &Device) -> Option<DLDevice> {
    let device_id = device.info().address.strip_prefix("cuda:")?.parse().ok()?;
    Some(DLDevice { device_type: DL_CUDA, device_id })
}

/// Exports memory of a GPU without a copy.
fn lend<T, B>(
    cx: &ExecutionContext,
    tensor: Tensor<T, B>,
    device: DLDevice,
    mut flags: u64,
) -> Result<ManagedTensor>
where
    T: DType,
    B: BufferSource<Element = T::Stored> + Borrow<DeviceBuffer<T::Stored>> + Sync + 'static,
{
    let dtype = data_type::<T>()?;
    let dims = dims_of(tensor.layout());
    if tensor.layout().has_overlap() {
        flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
    }
    if tensor.is_empty() {
        let none = std::ptr::null_mut();
        return Ok(ManagedTensor::of(none, (device, dtype), dims, flags, Box::new(())));
    }
    let (address, stream) = cx.enqueue(|stream| {
        let address = tensor.buffer().borrow().lend_raw(stream)?;
        Ok((address, stream.clone()))
    })?;
    let first = address + (tensor.layout().offset() * size_of::<T::Stored>()) as u64;
    let lent = Box::new(Lent(Some((tensor, stream))));
    Ok(ManagedTensor::of(first as *mut c_void, (device, dtype), dims, flags, lent))
}

/// Exports a copy on the host.
fn copy_to_host<T, B>(tensor: Tensor<T, B>) -> impl DeviceOp<Output = ManagedTensor>
where
    T: DType,
    B: BufferSource<Element = T::Stored>,
{
    let layout = Layout::contiguous(tensor.shape());
    transfer::to_host_vec(tensor).try_map(move |mut elements: Vec<T>| {
        let (dtype, dims) = (data_type::<T>()?, dims_of(&layout?));
        let first = match elements.is_empty() {
            true => std::ptr::null_mut(),
            // A `bool` of Rust has the same bytes as one of DLPack.
            false => elements.as_mut_ptr().cast(),
        };
        let device = DLDevice { device_type: DL_CPU, device_id: 0 };
        let (flags, owner) = (DLPACK_FLAG_BITMASK_IS_COPIED, Box::new(elements));
        Ok(ManagedTensor::of(first, (device, dtype), dims, flags, owner))
    })
}

/// Returns the shape and the strides.
fn dims_of(layout: &Layout) -> (Vec<i64>, Vec<i64>) {
    let numbers = |of: &[usize]| of.iter().map(|number| *number as i64).collect();
    (numbers(layout.shape()), numbers(layout.strides()))
}

/// A tensor whose memory a consumer uses, and the stream on which it was lent.
struct Lent<T, B>(Option<(Tensor<T, B>, Stream)>)
where
    T: DType,
    B: BufferSource<Element = T::Stored> + Borrow<DeviceBuffer<T::Stored>> + Sync + 'static;

impl<T, B> Drop for Lent<T, B>
where
    T: DType,
    B: BufferSource<Element = T::Stored> + Borrow<DeviceBuffer<T::Stored>> + Sync + 'static,
{
    fn drop(&mut self) {
        let Some((tensor, stream)) = self.0.take() else { return };
        // Lending the memory again orders the free after the commands that the consumer has enqueued on the stream. If
        // the helper thread cannot start, the task is dropped here, and the free comes after this library's work only.
        _ = helper().run(move || {
            // An error can only mean that the device is lost.
            _ = tensor.buffer().borrow().lend_raw(&stream);
            drop(tensor);
        });
    }
}
