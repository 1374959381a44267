//! `ScalarMemory`: memory of one value in device memory that every handle may write.
//!
//! # Rules
//! The handles of a scalar are shared, and a write needs no exclusive borrow. The allocation is marked before the first
//! handle exists, so all its submissions take turns (see `stream::submit`). That orders a write through one handle with
//! every other use.
//!
//! Inside one launch nothing orders two arguments. So a declared kernel that writes a scalar must not have it as
//! another argument: see `Arguments::require_unaliased`.

use std::sync::Arc;

use super::{buffer::DeviceBuffer, pinned::PinnedBuffer};
use crate::handle::memory::buffer::{Slice, SliceMut};
use crate::{
    handle::{device::Device, memory::buffer::is_pattern, stream::Stream},
    protocol::{Element, Result, Ticket},
};

/// Device memory of one value, at an address that does not change. Clones are the same value.
///
/// Unlike a buffer it is written through a shared handle: a write is ordered after all earlier uses and before all
/// later ones, on every stream.
pub struct ScalarMemory<T>(Arc<DeviceBuffer<T>>);

impl<T: Element> ScalarMemory<T> {
    /// Allocates a scalar. Its value is unspecified (some earlier bytes of this device).
    ///
    /// # Errors
    /// The errors of [`DeviceBuffer::uninitialized`].
    pub fn uninitialized(stream: &Stream) -> Result<Self> {
        let buffer = DeviceBuffer::uninitialized(stream, 1)?;
        buffer.allocation().become_scalar();
        Ok(Self(Arc::new(buffer)))
    }

    /// Returns a slice of the value, for writing. Other handles may write the value too.
    pub fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut::new(self.0.view())
    }

    /// Returns a slice of the value, for reading.
    pub fn as_slice(&self) -> Slice<'_, T> {
        self.0.as_slice()
    }

    /// Sets the value, after all earlier uses. The value travels in the command, so no host memory is needed. Returns
    /// `None`, and submits nothing, if the value is not a repeated pattern of one, two or four bytes: use
    /// [`upload`](Self::upload) then.
    ///
    /// # Errors
    /// An error of the device.
    pub fn set(&self, stream: &Stream, value: T) -> Option<Result<Ticket>> {
        is_pattern(&value).then(|| self.0.view().fill(stream, &value))
    }

    /// Sets the value to the only element of `host`, after all earlier uses.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `host` does not have exactly one element, or an error of the
    /// device.
    pub fn upload(&self, stream: &Stream, host: PinnedBuffer<T>) -> Result<Ticket> {
        self.0.view().upload(stream, host)
    }
}

impl<T> ScalarMemory<T> {
    /// Returns the device of the scalar.
    pub fn device(&self) -> &Device {
        self.0.device()
    }

    /// Returns the memory as a buffer of one element, for reading.
    pub fn buffer(&self) -> &Arc<DeviceBuffer<T>> {
        &self.0
    }
}

impl<T> Clone for ScalarMemory<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> std::fmt::Debug for ScalarMemory<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ty = std::any::type_name::<T>();
        write!(f, "ScalarMemory({ty} on {})", self.device().info().address)
    }
}
