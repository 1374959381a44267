//! `Tensor::into_dlpack`: tensors for other frameworks.

use std::{borrow::Borrow, ffi::c_void};

use cuda_core::{Device, DeviceBuffer, Result, Stream};

use super::{
    abi::{
        DL_CPU, DL_CUDA, DLDevice, DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY,
    },
    element,
    import::helper,
    managed::ManagedTensor,
};
use crate::{
    DeviceOp, ExecutionContext, defer,
    memory::BufferSource,
    ops::Either,
    tensor::{
        dtype::DType,
        host,
        layout::Layout,
        tensor::{SharedTensor, Tensor},
    },
    value, with_context,
};

impl<T: DType> Tensor<T> {
    /// Gives the tensor to code that takes tensors of DLPack. Needs the feature `dlpack`.
    ///
    /// The memory of a GPU of this process is given without a copy (`kDLCUDA`). Views keep their strides. Commands that are
    /// enqueued later on the stream on which the operation runs come after all work on the tensor. After `.await` or
    /// [`sync`](DeviceOp::sync), all work on it is complete, and every stream may be used.
    ///
    /// The deleter never blocks. The memory is freed on a thread of this library, in the order of that stream: the commands
    /// that the consumer has enqueued there come first. A broadcast tensor is read-only for the consumer.
    ///
    /// A tensor on any other device is copied to the host (`kDLCPU`), in row-major order.
    ///
    /// ```
    /// use cuda_async::{prelude::*, tensor::{Tensor, TensorOps, dlpack::ManagedTensor}};
    /// let managed = Tensor::full(7i64, [2, 3]).then(|x| x.into_dlpack()).sync()?;
    /// assert_eq!(managed.shape(), [2, 3]);
    /// let raw = managed.into_raw(); // for the other framework, which calls its deleter
    /// // SAFETY: `raw` is valid, and is used once.
    /// drop(unsafe { ManagedTensor::from_raw(raw) }?);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) in a recording, or if a recording uses the memory;
    /// [`Error::NeedsHostData`](crate::Error::NeedsHostData) in [`async_on`](DeviceOp::async_on) for a copy to the host; or
    /// an error of the device. The tensor is then dropped.
    pub fn into_dlpack(self) -> impl DeviceOp<Output = ManagedTensor> {
        export(self, 0)
    }
}

impl<T: DType> SharedTensor<T> {
    /// Gives the tensor to code that takes tensors of DLPack. It is read-only for the consumer. Needs the feature `dlpack`.
    ///
    /// Everything else is as for [`Tensor::into_dlpack`](Tensor::into_dlpack).
    ///
    /// # Errors
    /// As for [`Tensor::into_dlpack`](Tensor::into_dlpack).
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

/// Returns DLPack's name of a GPU of this process.
fn gpu(device: &Device) -> Option<DLDevice> {
    let device_id = device.info().address.strip_prefix("cuda:")?.parse().ok()?;
    Some(DLDevice { device_type: DL_CUDA, device_id })
}

/// Gives the memory of a GPU without a copy.
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
    let dtype = element::data_type::<T>()?;
    let places = places(tensor.layout());
    if tensor.layout().has_overlap() {
        flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
    }
    if tensor.is_empty() {
        let none = std::ptr::null_mut();
        return Ok(ManagedTensor::of(none, (device, dtype), places, flags, Box::new(())));
    }
    let (address, stream) = cx.enqueue(|stream| {
        let address = tensor.buffer().borrow().lend_raw(stream)?;
        Ok((address, stream.clone()))
    })?;
    let first = address + (tensor.layout().offset() * size_of::<T::Stored>()) as u64;
    let lent = Box::new(Lent(Some((tensor, stream))));
    Ok(ManagedTensor::of(first as *mut c_void, (device, dtype), places, flags, lent))
}

fn copy_to_host<T, B>(tensor: Tensor<T, B>) -> impl DeviceOp<Output = ManagedTensor>
where
    T: DType,
    B: BufferSource<Element = T::Stored>,
{
    let layout = Layout::contiguous(tensor.shape());
    host::to_host_vec(tensor).try_map(move |mut elements: Vec<T>| {
        let (dtype, places) = (element::data_type::<T>()?, places(&layout?));
        let first = match elements.is_empty() {
            true => std::ptr::null_mut(),
            // `bool` has the bytes that DLPack's has.
            false => elements.as_mut_ptr().cast(),
        };
        let device = DLDevice { device_type: DL_CPU, device_id: 0 };
        let (flags, owner) = (DLPACK_FLAG_BITMASK_IS_COPIED, Box::new(elements));
        Ok(ManagedTensor::of(first, (device, dtype), places, flags, owner))
    })
}

/// The shape and the strides.
fn places(layout: &Layout) -> (Vec<i64>, Vec<i64>) {
    let numbers = |of: &[usize]| of.iter().map(|it| *it as i64).collect();
    (numbers(layout.shape()), numbers(layout.strides()))
}

/// A tensor that a consumer uses, and the stream on which it was lent.
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
        // The memory is freed after the commands that the consumer has enqueued on the stream. If the helper thread cannot
        // start, the job is dropped here, and the memory is freed in the order of the earlier work.
        _ = helper().run(move || {
            // An error can only mean that the device is lost.
            _ = tensor.buffer().borrow().lend_raw(&stream);
            drop(tensor);
        });
    }
}
