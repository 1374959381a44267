//! Streams of cudarc.

use std::sync::Arc;

use cuda_core::{Device, Result, Stream};
use cudarc::driver::CudaStream;

use super::device::{device, raw};

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
/// [`Error::Unsupported`](crate::Error::Unsupported) for the stream of a thread (`per_thread_stream`),
/// [`Error::WrongDevice`](crate::Error::WrongDevice) if its context is not the primary one of the GPU,
/// [`Error::Misuse`](crate::Error::Misuse) if it is being captured, or an error of the device.
///
/// # Safety
/// No code captures `theirs` while an operation submits work to the result. Otherwise the work would be part of the
/// capture. It would run at a later launch of the graph, when its memory may have another use.
pub unsafe fn stream(theirs: &Arc<CudaStream>) -> Result<Stream> {
    let device = device(theirs.context())?;
    // SAFETY: no code captures `theirs` while an operation submits work to the result.
    unsafe { add(&device, theirs) }
}

/// As [`stream`], with the device of its context.
///
/// # Safety
/// No code captures `theirs` while an operation submits work to the result.
pub unsafe fn add(device: &Device, theirs: &Arc<CudaStream>) -> Result<Stream> {
    let raw = raw(theirs)?;
    // SAFETY: cudarc's stream exists as long as its `Arc`, which is the owner. No code
    // captures it while an operation submits work to it.
    unsafe { device.add_foreign_stream(raw, Box::new(theirs.clone())) }
}
