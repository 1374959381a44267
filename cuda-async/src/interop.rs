//! cudarc (feature `cudarc`): its streams, memory and kernels in operations, without copies.
//!
//! | to | use |
//! |---|---|
//! | run operations on a stream of cudarc | [`stream`], then [`sync_on`](crate::DeviceOp::sync_on) |
//! | use memory of cudarc in operations | [`from_slice`], `Tensor::from_buffer` of `cuda-tensor` |
//! | use the output of an operation in cudarc | [`into_slice`] |
//! | launch a kernel that cudarc has loaded | [`launch`] |
//! | call a CUDA library on the stream of an operation | [`ForeignCall`], [`with_context`](crate::with_context) |
//!
//! cudarc and this library use the same context of a GPU, the primary one. So each library can use streams and memory
//! of the other.
//!
//! ```no_run
//! use cuda_async::{interop, prelude::*};
//! use cudarc::driver::CudaContext;
//!
//! let theirs = CudaContext::new(0)?.new_stream()?;
//! // SAFETY: no code captures `theirs`.
//! let stream = unsafe { interop::stream(&theirs) }?;
//!
//! let numbers = theirs.clone_htod(&[1.0f32, 2.0, 3.0])?;
//! let buffer: DeviceBuffer<f32> = interop::from_slice(numbers)?;
//! let sum = value(buffer).then(to_host).map(|v| v.iter().sum::<f32>()).sync_on(&stream)?;
//! assert_eq!(sum, 6.0);
//!
//! let buffer = h2d(vec![4.0f32; 3]).sync_on(&stream)?;
//! assert_eq!(theirs.clone_dtoh(&interop::into_slice(buffer, &theirs)?)?, [4.0; 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
// This file uses `op`, `context`, `kernel` and `runtime`. Programs call it, and `cuda-tensor` uses it for candle.

use std::{sync::Arc, task::Context};

use cuda_core::{
    Arguments, Device, DeviceBuffer, Element, Error, Feature, LaunchConfig, MemoryConflict, Misuse,
    Result, Stream, protocol::LaunchAttributes,
};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtrMut, DriverError, result,
    sys::CUstreamCaptureStatus,
};

use crate::{
    context::ExecutionContext,
    kernel::{BufferTuple, Buffers, KernelArgs},
    op::{Op, Submit, Submitted},
    open_blocking,
};

pub use cuda_core::{ForeignCall, RawStream};
pub use cudarc;

/// Returns a stream that is the same stream of the driver as `theirs`. Operations on it and cudarc's commands on
/// `theirs` run in the order in which they are enqueued. The stream stays alive while either library has a handle.
///
/// Call this once and keep the result: each call adds another stream to the device.
///
/// ```no_run
/// use cuda_async::{interop, prelude::*};
/// let theirs = cudarc::driver::CudaContext::new(0)?.new_stream()?;
/// // SAFETY: no code captures `theirs`.
/// let stream = unsafe { interop::stream(&theirs) }?;
/// assert_eq!(h2d(vec![1u32, 2]).then(to_host).sync_on(&stream)?, [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Misuse`] for the stream of a thread (`per_thread_stream`) and for one that is being captured,
/// [`Error::WrongDevice`] if its context is not the primary one of the GPU, or an error of the device.
///
/// # Safety
/// No code captures `theirs` while an operation submits work to the result. Otherwise the work would be part of the
/// capture. It would run at a later launch of the graph, when its memory may have another use.
pub unsafe fn stream(theirs: &Arc<CudaStream>) -> Result<Stream> {
    let device = device(theirs.context())?;
    // SAFETY: no code captures `theirs` while an operation submits work to the result.
    unsafe { add_stream(&device, theirs) }
}

/// As [`stream`], with the device of its context.
///
/// # Safety
/// No code captures `theirs` while an operation submits work to the result.
pub unsafe fn add_stream(device: &Device, theirs: &Arc<CudaStream>) -> Result<Stream> {
    let raw = raw(theirs)?;
    // SAFETY: cudarc's stream exists as long as its `Arc`, which is the owner. No code
    // captures it while an operation submits work to it.
    unsafe { device.add_foreign_stream(raw, Box::new(theirs.clone())) }
}

/// Converts memory of cudarc into a buffer, without a copy. Work on the buffer comes after everything that cudarc has
/// enqueued on the memory so far. When the buffer is dropped, cudarc frees the memory after the last work on it.
///
/// # Errors
/// [`Error::OutOfRange`] if there are no elements,
/// [`Error::WrongDevice`] if the context of the memory is not the primary one of the GPU,
/// [`Error::Misuse`] if the stream of the memory is being captured, or an error of the device.
pub fn from_slice<T: Element>(mut slice: CudaSlice<T>) -> Result<DeviceBuffer<T>> {
    let theirs = slice.stream().clone();
    let device = device(theirs.context())?;
    // SAFETY: submits one marker now, and the stream is not being captured. If another thread begins to capture it at
    // this moment, the driver refuses to wait for the marker outside of the capture.
    let stream = unsafe { add_stream(&device, &theirs) }?;
    // Makes `theirs` wait for the other streams of cudarc that use the memory.
    let (address, tracked) = slice.device_ptr_mut(&theirs);
    drop(tracked);
    let (len, owner) = (slice.len(), Owner(Some(slice)));
    // SAFETY: cudarc has allocated the memory, which exists as long as the slice. The owned slice has no views, so no
    // code of cudarc uses the memory any more.
    unsafe { DeviceBuffer::from_raw_parts(&stream, address, len, Box::new(owner)) }
}

/// Converts a buffer into memory of cudarc, without a copy. Commands that cudarc enqueues on `stream` later come after
/// all work on the buffer so far. cudarc then owns the memory and frees it. A buffer from [`from_slice`] becomes the
/// same slice again.
///
/// # Errors
/// [`Error::StillShared`] if the memory has other owners; [`Error::Misuse`] if it is memory of a module or of other
/// foreign code, a part of a split buffer, empty, or used by a recording, or if `stream` is being captured;
/// [`Error::WrongDevice`] if `stream` is one of another GPU; or an error of the device. The buffer is then dropped.
pub fn into_slice<T: Element>(
    buffer: DeviceBuffer<T>,
    stream: &Arc<CudaStream>,
) -> Result<CudaSlice<T>> {
    into_slice_ordered(buffer, stream, stream)
}

/// As [`into_slice`], for two streams: `ordered` waits for the work on the buffer, and cudarc frees the memory on
/// `stream`. The caller orders commands on `stream` after those on `ordered`.
///
/// # Errors
/// The errors of [`into_slice`], for the stream `ordered`.
pub fn into_slice_ordered<T: Element>(
    buffer: DeviceBuffer<T>,
    ordered: &Arc<CudaStream>,
    stream: &Arc<CudaStream>,
) -> Result<CudaSlice<T>> {
    // SAFETY: makes the stream wait for an event, and the stream is not being captured. If another thread begins to
    // capture it at this moment, the driver refuses to wait for an event outside of the capture.
    let ours = unsafe { add_stream(buffer.device(), ordered) }?;
    let len = buffer.len();
    let (address, owner) = buffer.into_raw_parts(&ours)?;
    let Some(owner) = owner else {
        // SAFETY: an allocation of `len` elements, whose bytes are valid for every element type. Its owner is cudarc
        // now.
        return Ok(unsafe { stream.upgrade_device_ptr(address, len) });
    };
    let slice = owner.downcast::<Owner<T>>().ok().and_then(|mut owner| owner.0.take());
    let Some(mut slice) = slice else {
        return Err(Error::memory("giving memory to cudarc", MemoryConflict::Foreign));
    };
    // Records on `stream`, behind all work of this library, that the memory was written.
    drop(slice.device_ptr_mut(stream).1);
    Ok(slice)
}

/// An owned slice. Its drop makes the context of its GPU current first, as cudarc expects.
struct Owner<T>(Option<CudaSlice<T>>);

impl<T> Drop for Owner<T> {
    fn drop(&mut self) {
        if let Some(slice) = self.0.take() {
            // This runs on a thread of the device. If it fails, the device is lost.
            _ = slice.context().bind_to_thread();
            drop(slice);
        }
    }
}

/// Runs a kernel of a module that cudarc has loaded. Takes the arguments of [`launch`](crate::launch) and gives the
/// same output.
///
/// # Errors
/// [`Error::Unsupported`] on a device that is not a GPU of this process, and for a launch with attributes (cooperative,
/// clusters, dependent); or an error of the device.
///
/// # Safety
/// - The number and the types of the arguments are those that the kernel takes. They are not checked.
/// - Everything that [`launch`](crate::launch) requires.
pub unsafe fn launch<A: KernelArgs>(
    function: &CudaFunction,
    config: LaunchConfig,
    args: A,
) -> Op<ForeignLaunch<A>> {
    Op::new(ForeignLaunch(function.clone(), config, args))
}

/// The steps of [`launch`].
pub struct ForeignLaunch<A>(CudaFunction, LaunchConfig, A);

impl<A: KernelArgs> Submit for ForeignLaunch<A> {
    type Output = Buffers<A>;

    fn submit(self, _: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self(function, config, args) = self;
        if config.attributes != LaunchAttributes::default() {
            let device = &cx.device().info().address;
            return Err(Error::unsupported(Feature::ForeignLaunchAttributes, device));
        }
        cx.enqueue(|stream| {
            let mut arguments = Arguments::new();
            args.push_all(&mut arguments);
            // SAFETY: the arguments are those that the kernel takes, and the kernel stays inside the buffers among
            // them, as the safety section of `launch` requires. The function holds its module. `args` holds the buffers
            // until the launch is enqueued.
            unsafe {
                let kernel = function.cu_function();
                arguments.launch_foreign(stream, Arc::new(function), |raw, arguments| {
                    result::launch_kernel(
                        kernel,
                        config.grid.into(),
                        config.block.into(),
                        config.shared_bytes,
                        raw.stream.cast(),
                        arguments,
                    )
                    .map_err(failed)
                })
            }
        })?;
        Ok(Submitted::Ready(args.give_back(()).bare()))
    }
}

/// Returns the device of this process that is the GPU of a context of cudarc: the one of `open_blocking("cuda:N")`.
///
/// # Errors
/// Those of [`open_blocking`], and [`Error::WrongDevice`] if the context is not the primary one
/// of the GPU.
pub fn device(context: &Arc<CudaContext>) -> Result<Device> {
    let device = open_blocking(&format!("cuda:{}", context.ordinal()))?;
    if context.is_primary() {
        return Ok(device);
    }
    Err(Error::WrongDevice {
        what: "a context of cudarc".into(),
        lives_on: "a context that is not the primary one; use `CudaContext::new`".into(),
        used_on: device.info().address.clone(),
    })
}

/// Returns the raw handles of a stream of cudarc.
///
/// # Errors
/// [`Error::Misuse`] if the stream is being captured.
pub(super) fn raw(stream: &CudaStream) -> Result<RawStream> {
    let status = stream.capture_status().map_err(failed)?;
    if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        return Err(Misuse::StreamInCapture.into());
    }
    let context = stream.context().cu_ctx().cast();
    Ok(RawStream { stream: stream.cu_stream().cast(), context })
}

/// Converts an error of cudarc.
pub(super) fn failed(error: DriverError) -> Error {
    Error::other(error)
}
