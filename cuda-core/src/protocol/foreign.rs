//! Foreign submissions: work of other libraries (cuBLAS, a caller's own driver calls) on a stream of this one.

use std::{any::Any, ffi::c_void, sync::Arc};

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

    /// Runs `submit` with a raw stream of its own, and captures the commands that it enqueues there. None of them runs.
    ///
    /// # Errors
    /// The error of `submit`, or of the device. [`Error::Unsupported`](super::Error::Unsupported) if the device has no
    /// captures.
    ///
    /// # Safety
    /// `submit` enqueues commands that a capture can have, and ends no capture.
    unsafe fn capture(
        &self,
        submit: &mut dyn FnMut(RawStream) -> Result<()>,
    ) -> Result<ForeignWork>;

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

/// Commands of foreign code that were captured. Only the backend that captured them knows their form. Clones are the
/// same commands.
#[derive(Clone)]
pub struct ForeignWork(Arc<dyn Any + Send + Sync>);

impl ForeignWork {
    /// Wraps the commands in the form of the backend.
    pub fn new(commands: impl Any + Send + Sync) -> Self {
        Self(Arc::new(commands))
    }

    /// Returns the commands, if they have the form `T`.
    pub fn commands<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.clone().downcast().ok()
    }
}

impl PartialEq for ForeignWork {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for ForeignWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForeignWork")
    }
}
