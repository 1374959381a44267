//! The device of a context of cudarc, and errors of cudarc.

use std::sync::Arc;

use cuda_core::{Device, Error, Misuse, RawStream, Result};
use cudarc::driver::{CudaContext, CudaStream, DriverError, sys::CUstreamCaptureStatus};

use crate::open_blocking;

/// Returns the device of this process that is the GPU of a context of cudarc: the one of `open_blocking("cuda:N")`.
///
/// # Errors
/// Those of [`open_blocking`](crate::open_blocking), and [`Error::WrongDevice`] if the context is not the primary one
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
