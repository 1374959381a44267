//! NVIDIA's libraries for GPUs, through cudarc's bindings (feature `cudarc`).

// Layers, lowest first: `library` looks for the library files and opens a library once for each GPU on a thread of its
// own, and the other files make the calls. The operations and `collective` use it, and run kernels of this crate
// where a library is missing.
//
// # Rules
// - A library is called only where it was found: cudarc panics if it is missing.
// - A handle of a library is used by one thread at a time, under its lock. cuBLASLt's handles are thread-safe and have
//   no lock.
// - A handle is never destroyed, because work that uses it may be in flight until the process ends. NCCL's
//   communicators are destroyed on a thread of their own: NCCL waits for their work. The exit of the process waits for
//   that thread.
// - Calls run inside `ForeignCall::submit`, which binds the GPU's context and orders the memory that they name. The
//   scratch memory of a call is an operand too, so no two calls in flight share it.

pub(crate) mod cublas;
pub(crate) mod cublaslt;
pub(crate) mod cufft;
mod library;
pub(crate) mod nccl;

use std::sync::atomic::{AtomicBool, Ordering};

pub use library::LibraryError;

static ENABLED: AtomicBool = AtomicBool::new(true);

/// Turns NVIDIA's libraries on or off for later operations of the process. They are on by default. Without them, the
/// kernels of this crate compute everything, with the same bits on every device.
pub fn set_enabled(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Returns whether operations use NVIDIA's libraries.
pub fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}
