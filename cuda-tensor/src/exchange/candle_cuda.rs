//! Conversions between tensors and those of `candle` on a GPU, without a copy.

// candle's default device (`Device::new_cuda`) uses the per-thread default stream (`CU_STREAM_PER_THREAD`): a different
// stream on each thread. An operation may run on any thread, so it is ordered with the legacy default stream instead.
// The driver orders that stream with the per-thread streams of all threads, in both directions (CUDA Driver API,
// "Stream synchronization behavior"). A device of `Device::new_cuda_with_stream` has one stream for all threads, and
// operations are ordered with that stream.

use std::{
    sync::{
        Arc, OnceLock,
        mpsc::{SendError, Sender, channel},
    },
    thread,
};

use candle_core::{
    CudaDevice, CudaStorage, Storage, WithDType, backend::BackendStorage, cuda_backend::CudaDType,
    op::BackpropOp,
};
use cuda_async::{
    DeviceOp, ExecutionContext, IntoDeviceOp, defer,
    internals::into_slice_ordered,
    interop::{self},
    memory::uninitialized,
    ops::Either,
    value, with_context,
};
use cuda_core::{Device, DeviceBuffer, Error, Limit, Misuse, Quantity, Result};
use cudarc::driver::{CudaStream, DevicePtr, result::DriverError, sys::CUstreamCaptureStatus};

use crate::{
    element::Number,
    error::TensorError,
    exchange::candle::check_elements,
    operations::copy::{Contiguous, contiguous, dup},
    shape::Layout,
    tensor::{SharedTensor, Tensor},
};

impl<T: Number + WithDType + CudaDType> SharedTensor<T> {
    /// Takes a tensor of `candle` on a GPU without a copy. Needs the feature `candle-cuda`.
    ///
    /// The result is in candle's memory, with the same strides. Run the operation on the GPU of the tensor and outside
    /// of a graph. Work on the result comes after everything that candle enqueued on its device's stream before the
    /// operation ran. For candle's default device, this holds for the default streams of all threads.
    ///
    /// The memory is released when the last handle of the result is dropped and the last work on it is complete. candle
    /// then frees it, unless candle has other handles of it. Until then, candle may read the tensor too. Memory that is
    /// released while candle's stream is being captured leaks, because candle cannot free memory during a capture.
    ///
    /// ```ignore
    #[doc = include_str!("../../tests/candle/examples/from_candle_cuda.rs")]
    /// ```
    ///
    /// # Errors
    /// - [`TensorError::ElementType`], or [`TensorError::NotOnGpu`].
    /// - [`Error::OutOfRange`] if the tensor reaches past its memory, or if it has too many dimensions.
    /// - [`Error::WrongDevice`] if the tensor is not on the device on which the operation runs.
    /// - [`Error::Misuse`] in a recording, if candle's stream is being captured, or if two indices have the same
    ///   element, except in a dimension with a stride of 0.
    /// - An error of the device, also if a per-thread default stream is being captured.
    ///
    /// # Safety
    /// Until the memory is released, no code writes the elements:
    /// - not candle, through any tensor with the same storage (`Var::set`, `slice_set`, operations in place);
    /// - no operation on the tensor or the buffer that [`into_owned`](SharedTensor::into_owned) or
    ///   [`into_buffer`](SharedTensor::into_buffer) returns for the result.
    pub unsafe fn from_candle_cuda(tensor: candle_core::Tensor) -> impl DeviceOp<Output = Self> {
        with_context(move |cx| in_place(&cx, &tensor))
    }

    /// Converts the tensor into one of `candle` on a GPU. Needs the feature `candle-cuda`.
    ///
    /// The elements are copied on the GPU first if other handles use the memory, if the memory came from foreign code,
    /// or if the tensor is not contiguous.
    ///
    /// candle's device, the order of its commands and the owner of the memory are as for
    /// [`Tensor::into_candle_cuda`](Tensor::into_candle_cuda).
    ///
    /// # Errors
    /// The errors of [`Tensor::into_candle_cuda`](Tensor::into_candle_cuda).
    pub fn into_candle_cuda(
        self,
        device: &candle_core::Device,
    ) -> impl DeviceOp<Output = candle_core::Tensor> + use<T> {
        let device = device.clone();
        defer(move || {
            let theirs = cuda_device(&device, self.device())?;
            let owned = match self.into_owned() {
                Ok(owned) if !owned.buffer().is_foreign() => Either::Left(value(owned)),
                Ok(foreign) => Either::Right(dup(foreign.into_shared())),
                Err(shared) => Either::Right(dup(shared)),
            };
            Ok(owned.into_op().then(move |tensor| give(tensor, theirs)))
        })
    }
}

impl<T: Number + WithDType + CudaDType> Tensor<T> {
    /// Converts the tensor into one of `candle` on a GPU, without a copy. candle then owns the memory and frees it.
    /// Needs the feature `candle-cuda`.
    ///
    /// `device` is candle's device of the same GPU. A tensor that is not contiguous is copied on the GPU first. A part
    /// of a tensor, such as a slice, keeps the memory of the whole tensor allocated.
    ///
    /// Commands that candle enqueues later on its device's stream come after all work on the tensor. For candle's
    /// default device, this holds for the default streams of all threads.
    ///
    /// ```ignore
    #[doc = include_str!("../../tests/candle/examples/into_candle_cuda.rs")]
    /// ```
    ///
    /// # Errors
    /// The tensor is dropped on an error:
    /// - [`Error::WrongDevice`] if `device` is not the GPU of the tensor.
    /// - [`TensorError::NotOnGpu`] if `device` is not a GPU.
    /// - [`Error::Misuse`] in a recording, if a recording uses the memory, if candle's stream is being captured, or if
    ///   the memory is a part of a split buffer or belongs to foreign code other than cudarc.
    /// - [`Error::StillShared`] if the memory has other owners.
    /// - [`Error::OutOfMemory`], the error of candle, or an error of the device.
    pub fn into_candle_cuda(
        self,
        device: &candle_core::Device,
    ) -> impl DeviceOp<Output = candle_core::Tensor> + use<T> {
        let device = device.clone();
        defer(move || {
            let theirs = cuda_device(&device, self.device())?;
            Ok(give(self, theirs))
        })
    }
}

/// Returns the stream with which operations are ordered instead of candle's stream. The comment at the head of this
/// file explains it.
fn ordered_stream(stream: &Arc<CudaStream>) -> Arc<CudaStream> {
    if is_per_thread(stream) { stream.context().default_stream() } else { stream.clone() }
}

/// Returns whether the stream is the per-thread default stream (`CU_STREAM_PER_THREAD`).
fn is_per_thread(stream: &CudaStream) -> bool {
    stream.cu_stream() == stream.context().per_thread_stream().cu_stream()
}

/// Returns candle's device as a GPU, which must be the device `ours`.
///
/// # Errors
/// [`TensorError::NotOnGpu`] if it is not a GPU, [`Error::WrongDevice`] if it is another GPU.
fn cuda_device(theirs: &candle_core::Device, ours: &Device) -> Result<CudaDevice> {
    let candle_core::Device::Cuda(theirs) = theirs else {
        return Err(TensorError::NotOnGpu { object: "a device of candle" }.into());
    };
    let (lives_on, used_on) = (ours.info().address.clone(), address(theirs));
    if lives_on == used_on {
        return Ok(theirs.clone());
    }
    Err(Error::WrongDevice { what: "a tensor".into(), lives_on, used_on })
}

/// Returns the address of a device of candle: `cuda:`, then its ordinal.
fn address(device: &CudaDevice) -> String {
    format!("cuda:{}", device.cuda_stream().context().ordinal())
}

/// Returns [`Error::Misuse`] in a recording.
fn outside_of_recordings(cx: &ExecutionContext) -> Result<()> {
    if cx.is_recording() { Err(Misuse::ExchangeInRecording.into()) } else { Ok(()) }
}

/// Returns a tensor in the memory of a tensor of candle.
fn in_place<T: Number + WithDType + CudaDType>(
    cx: &ExecutionContext,
    tensor: &candle_core::Tensor,
) -> Result<impl IntoDeviceOp<Output = SharedTensor<T>> + use<T>> {
    outside_of_recordings(cx)?;
    check_elements::<T>(tensor)?;
    let (storage, theirs) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else {
        return Err(TensorError::NotOnGpu { object: "a tensor of candle" }.into());
    };
    let (lives_on, used_on) = (address(storage.device()), &cx.device().info().address);
    if lives_on != *used_on {
        let (what, used_on) = ("a tensor of candle".into(), used_on.clone());
        return Err(Error::WrongDevice { what, lives_on, used_on });
    }
    let layout = Layout::strided(theirs.dims(), theirs.stride())?;
    if layout.is_empty() {
        let none = uninitialized(0).map(|buffer| Tensor::of(Arc::new(buffer), layout));
        return Ok(Either::Left(none));
    }
    let slice = storage.as_cuda_slice::<T>().map_err(Error::other)?;
    let (first, len) = (theirs.start_offset(), layout.span().len());
    let end = first.saturating_add(len) as u64;
    Limit::AtMost(slice.len() as u64).check("a tensor of candle", Quantity::End, end)?;
    let theirs_on = storage.device().cuda_stream();
    let ordered = ordered_stream(&theirs_on);
    // SAFETY: submits one marker now, and the stream is not being captured. If another thread begins to capture it at
    // this moment, the driver refuses to wait for the marker outside of the capture.
    let stream = unsafe { interop::add_stream(cx.device(), &ordered) }?;
    // Makes `ordered` wait for writes on other streams of candle's context, if cudarc tracks them.
    let (whole, tracked) = slice.device_ptr(&ordered);
    drop(tracked);
    let address = whole + (first * size_of::<T>()) as u64;
    let owner = Box::new(Owner(Some((tensor.detach(), theirs_on))));
    // SAFETY: the elements are inside the slice, which exists as long as the tensor in `owner`. The caller of
    // `from_candle_cuda` promises that no code writes them. Work on `stream` comes after candle's work on its streams.
    let buffer = unsafe { DeviceBuffer::from_raw_parts(&stream, address, len, owner) }?;
    Ok(Either::Right(value(Tensor::of(Arc::new(buffer), layout))))
}

/// A tensor of candle whose memory a buffer uses, and the stream on which candle frees it.
struct Owner(Option<(candle_core::Tensor, Arc<CudaStream>)>);

impl Drop for Owner {
    fn drop(&mut self) {
        let Some((tensor, stream)) = self.0.take() else { return };
        if is_per_thread(&stream) {
            on_lasting_thread(move || free(tensor, &stream));
        } else {
            free(tensor, &stream);
        }
    }
}

/// Drops a tensor on candle's stream.
fn free(tensor: candle_core::Tensor, stream: &Arc<CudaStream>) {
    let bound = stream.context().bind_to_thread();
    if !matches!(bound.and_then(|()| order_free(stream)), Ok(true)) {
        // The stream is being captured or the device is lost, so candle cannot free the memory: leak it.
        std::mem::forget(tensor);
    }
}

type Task = Box<dyn FnOnce() + Send>;

/// Runs a task on a thread that never exits. With NVIDIA driver 580, the exit of a thread hangs if a free on its
/// default stream is in flight. Later driver calls of other threads then block too. If the lasting thread cannot start,
/// the task runs on the current thread.
fn on_lasting_thread(task: impl FnOnce() + Send + 'static) {
    static THREAD: OnceLock<Sender<Task>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (tasks, queue) = channel::<Task>();
        let run = move || queue.into_iter().for_each(|task| task());
        _ = thread::Builder::new().name("cuda-candle".into()).spawn(run);
        tasks
    });
    if let Err(SendError(task)) = thread.send(Box::new(task)) {
        task();
    }
}

/// Orders a free on candle's stream after candle's own work, which may be in flight on the default stream of another
/// thread. Returns false if candle cannot free memory now, because the stream is being captured. Work of this library
/// is already complete.
fn order_free(stream: &Arc<CudaStream>) -> Result<bool, DriverError> {
    let ordered = ordered_stream(stream);
    if ordered.capture_status()? != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        return Ok(false);
    }
    if is_per_thread(stream) {
        stream.join(&ordered)?;
    }
    Ok(true)
}

/// Converts a tensor into one of candle, in row-major order.
fn give<T: Number + WithDType + CudaDType>(
    tensor: Tensor<T>,
    device: CudaDevice,
) -> impl DeviceOp<Output = candle_core::Tensor> {
    contiguous(tensor).then(move |(Contiguous::Original(tensor) | Contiguous::Copied(tensor))| {
        with_context(move |cx| {
            outside_of_recordings(&cx)?;
            wrap(tensor, &device).map(value)
        })
    })
}

/// Returns a tensor of candle in the memory of a contiguous tensor.
fn wrap<T: Number + WithDType + CudaDType>(
    tensor: Tensor<T>,
    device: &CudaDevice,
) -> Result<candle_core::Tensor> {
    let (shape, first) = (tensor.shape().to_vec(), tensor.layout().offset());
    if tensor.is_empty() {
        let device = candle_core::Device::Cuda(device.clone());
        return candle_core::Tensor::zeros(shape, T::DTYPE, &device).map_err(Error::other);
    }
    let (len, stream) = (tensor.len(), device.cuda_stream());
    let slice = into_slice_ordered(tensor.into_buffer(), &ordered_stream(&stream), &stream)?;
    let whole = slice.len();
    let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(slice, device.clone()));
    let whole = candle_core::Tensor::from_storage(storage, whole, BackpropOp::none(), false);
    whole.narrow(0, first, len).and_then(|part| part.reshape(shape)).map_err(Error::other)
}
