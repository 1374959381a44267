//! Streams of cudarc.

use std::sync::Arc;

use cuda_core::{Device, Result, Stream};
use cudarc::driver::CudaStream;

use super::device::{device, raw};

/// Returns a stream on which operations run in order with the commands that cudarc enqueues on `theirs`: after those
/// before the operation, and before those after it. Both are one stream of the driver. It stays alive while either side
/// has a handle.
///
/// Make it once and keep it: each call makes a new handle.
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
/// [`Error::Unsupported`](crate::Error::Unsupported) for the stream of a thread (`per_thread_stream`),
/// [`Error::WrongDevice`](crate::Error::WrongDevice) if its context is not the primary one of the GPU,
/// [`Error::Misuse`](crate::Error::Misuse) if it is being captured, or an error of the device.
///
/// # Safety
/// No code captures `theirs` while an operation submits work to the result. Otherwise the work would be part of the
/// capture, and run when its memory is used for something else.
pub unsafe fn stream(theirs: &Arc<CudaStream>) -> Result<Stream> {
    let device = device(theirs.context())?;
    // SAFETY: the caller promises it.
    unsafe { add(&device, theirs) }
}

/// As [`stream`], on the device that was found.
///
/// # Safety
/// As for [`stream`].
pub(crate) unsafe fn add(device: &Device, theirs: &Arc<CudaStream>) -> Result<Stream> {
    let raw = raw(theirs)?;
    // SAFETY: cudarc's stream exists as long as its `Arc`, which is the owner. The caller promises the rest.
    unsafe { device.add_foreign_stream(raw, Box::new(theirs.clone())) }
}
