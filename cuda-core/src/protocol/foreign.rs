//! Foreign submissions: work of other libraries (cuBLAS, a caller's own driver calls) on a stream of this one.

use std::ffi::c_void;

use super::{Result, StreamId, Ticket};

/// The part of a backend that lends its streams to foreign code. Only backends of this process have one.
///
/// # Safety
/// An implementation calls `submit` at most once, with handles that are valid during the call.
pub unsafe trait Foreign: Send + Sync {
    /// Runs `submit` with the raw stream of `ticket`, ordered after the tickets in `after`. Everything that it enqueues
    /// counts as one submission.
    ///
    /// # Errors
    /// The error of `submit`, or of the device. The ticket is then not used.
    ///
    /// # Safety
    /// The commands that `submit` enqueues keep the rules of [`Backend::submit`](super::Backend::submit). A capture of the
    /// stream that `submit` begins has ended when it returns.
    unsafe fn submit(
        &self,
        ticket: Ticket,
        after: &[Ticket],
        submit: &mut dyn FnMut(RawStream) -> Result<()>,
    ) -> Result<()>;

    /// Returns the raw stream, for callers that only compare it or record events on it. Captures are for
    /// [`submit`](Self::submit).
    ///
    /// # Errors
    /// An error if there is no such stream.
    fn raw_stream(&self, stream: StreamId) -> Result<RawStream>;
}

/// The raw CUDA handles of a stream. They are valid inside the call that hands them out, and the context is current
/// there.
#[derive(Debug, Clone, Copy)]
pub struct RawStream {
    /// A `CUstream`.
    pub stream: *mut c_void,
    /// The `CUcontext` it belongs to.
    pub context: *mut c_void,
}
