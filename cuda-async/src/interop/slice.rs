//! Memory of cudarc.

use std::sync::Arc;

use cuda_core::{DeviceBuffer, Element, Error, MemoryConflict, Result};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut};

use super::{device::device, stream::add};

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
    let stream = unsafe { add(&device, &theirs) }?;
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
    let ours = unsafe { add(buffer.device(), ordered) }?;
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
