//! Foreign code: work of other libraries (cuBLAS, a caller's own driver calls) on streams of this one, and streams and
//! memory of other libraries under ids of this one.

use std::{any::Any, ffi::c_void, sync::Arc};

use super::{AllocId, Region, Result, StreamId, Ticket, Use};

/// An owner of a foreign resource, dropped when the backend no longer uses the resource.
pub type ForeignOwner = Box<dyn Any + Send + Sync>;

/// The part of a backend that lends its streams and memory to foreign code, and takes those of foreign code. Only
/// backends of this process have one.
///
/// # Safety
/// An implementation calls `submit` at most once, with handles that are valid during the call. It uses a foreign stream
/// only until its owner is dropped, and foreign memory only until it is forgotten.
pub unsafe trait Foreign: Send + Sync {
    /// Runs `submit` with the raw stream of `ticket`, ordered after the tickets in `after`. Everything that it enqueues
    /// counts as one submission.
    ///
    /// # Errors
    /// The error of `submit`, or of the device. The ticket is then not used.
    ///
    /// # Safety
    /// The commands that `submit` enqueues keep the rules of [`Backend::submit`](super::Backend::submit). A capture of
    /// the stream that `submit` begins has ended when it returns.
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
    /// `submit` enqueues only commands that the driver can capture, and ends no capture.
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

    /// Adds a stream of foreign code under a new id. [`Control::RetireStream`](super::Control::RetireStream) removes
    /// it. `owner` is dropped later, on a thread of the backend, and the stream is not destroyed.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](super::Error::WrongDevice) if it is of another context,
    /// [`Error::Unsupported`](super::Error::Unsupported) for the stream of a thread (`CU_STREAM_PER_THREAD`), or an
    /// error of the device.
    ///
    /// # Safety
    /// The stream exists until `owner` is dropped, and is not being captured while this library uses it.
    unsafe fn add_stream(&self, id: StreamId, raw: RawStream, owner: ForeignOwner) -> Result<()>;

    /// Adds memory of foreign code as an allocation. [`forget_memory`](Self::forget_memory) removes it. The backend
    /// never frees it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](super::Error::OutOfRange) if the device cannot address it, or an error of the device.
    ///
    /// # Safety
    /// The device may access `bytes` bytes from `address` on until the memory is forgotten.
    unsafe fn add_memory(&self, id: AllocId, address: u64, bytes: u64) -> Result<()>;

    /// Removes an allocation without freeing its memory. Its owner is the caller now.
    ///
    /// # Errors
    /// An error if there is no such allocation.
    ///
    /// # Safety
    /// No later submission names the allocation.
    unsafe fn forget_memory(&self, id: AllocId) -> Result<()>;

    /// Returns the device address of `bytes` bytes of a region.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](super::Error::OutOfRange) if they are not inside the allocation.
    fn address(&self, region: Region, bytes: u64) -> Result<u64>;
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
pub struct ForeignWork {
    commands: Arc<dyn Any + Send + Sync>,
    uses: Arc<[Use]>,
}

impl ForeignWork {
    /// Wraps the commands in the form of the backend. They name no operands.
    pub fn new(commands: impl Any + Send + Sync) -> Self {
        Self { commands: Arc::new(commands), uses: Arc::default() }
    }

    /// Returns the same commands, which use these operands and no other memory.
    pub fn with_uses(self, uses: impl IntoIterator<Item = Use>) -> Self {
        Self { uses: uses.into_iter().collect(), ..self }
    }

    /// Returns the operands of the commands.
    pub fn uses(&self) -> &[Use] {
        &self.uses
    }

    /// Returns the commands, if they have the form `T`.
    pub fn commands<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.commands.clone().downcast().ok()
    }
}

impl PartialEq for ForeignWork {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.commands, &other.commands)
    }
}

impl std::fmt::Debug for ForeignWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForeignWork")
    }
}
