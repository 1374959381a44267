//! Slices of shared device buffers.

use std::{
    ops::{Range, RangeBounds},
    sync::Arc,
};

use super::{buffer::DeviceBuffer, slice::Slice, view::bounds};
use crate::protocol::Result;

/// A slice of a shared device buffer, for reading. It keeps the buffer alive.
pub struct SharedSlice<T> {
    buffer: Arc<DeviceBuffer<T>>,
    range: Range<usize>,
}

impl<T> DeviceBuffer<T> {
    /// Returns a slice of the elements in `range`, for operations that outlive this call. They may only read it. The
    /// slice keeps the buffer alive.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `range` is not inside the buffer.
    pub fn share(self: &Arc<Self>, range: impl RangeBounds<usize>) -> Result<SharedSlice<T>> {
        let range = bounds(range, self.len() as u64);
        self.slice(range.clone())?;
        Ok(SharedSlice { buffer: self.clone(), range })
    }
}

impl<T> SharedSlice<T> {
    /// Returns a borrowed slice of the elements.
    pub fn as_slice(&self) -> Slice<'_, T> {
        // The range was checked when this was made, and a buffer never changes its length.
        self.buffer.slice(self.range.clone()).unwrap_or_else(|_| self.buffer.as_slice())
    }

    /// Returns a slice of the elements in `range`. The result keeps the buffer alive too.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `range` is not inside the slice.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let part = bounds(range, self.len() as u64);
        self.as_slice().slice(part.clone())?;
        let offset = |at: usize| self.range.start.saturating_add(at);
        Ok(Self { buffer: self.buffer.clone(), range: offset(part.start)..offset(part.end) })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the buffer.
    pub fn buffer(&self) -> &Arc<DeviceBuffer<T>> {
        &self.buffer
    }
}

impl<T> Clone for SharedSlice<T> {
    fn clone(&self) -> Self {
        Self { buffer: self.buffer.clone(), range: self.range.clone() }
    }
}

impl<T> std::fmt::Debug for SharedSlice<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedSlice({} x {})", self.len(), std::any::type_name::<T>())
    }
}
