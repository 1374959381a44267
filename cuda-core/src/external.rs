//! Foreign submissions: the one thing that is not a command.

use std::ffi::c_void;

/// Raw CUDA handles, valid inside the call that hands them out: its context is current there.
#[derive(Debug, Clone, Copy)]
pub struct RawStream {
    /// A `CUstream`.
    pub stream: *mut c_void,
    /// The `CUcontext` it belongs to.
    pub context: *mut c_void,
}
