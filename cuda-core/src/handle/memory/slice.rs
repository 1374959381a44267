//! Slices of device buffers: borrowed to read, and borrowed to write.
//!
//! # Rules
//! A [`SliceMut`] has exclusive access to its bytes, as `&mut` does: it comes from an exclusive borrow, and its parts
//! do not overlap. A split adds the boundary to the allocation before the parts exist, so uses of the parts are ordered
//! separately. Forgetting a slice is sound.
//!
//! The memory of a scalar and of a variable is an exception: other handles may write it too. Its submissions take turns,
//! and declared kernels check it ([`Arguments::require_unaliased`](crate::Arguments::require_unaliased)). A scalar has one
//! element, so it has no parts.

use std::{marker::PhantomData, ops::RangeBounds};

use super::{landing::Landing, pinned::PinnedBuffer, view::View};
use crate::{
    handle::{device::Device, stream::Stream},
    protocol::{Element, Region, Result, Ticket},
};

/// A borrowed slice of a device buffer, for reading.
#[derive(Clone, Copy)]
pub struct Slice<'a, T> {
    view: View<'a>,
    element: PhantomData<&'a [T]>,
}

/// A borrowed slice of a device buffer, for writing.
pub struct SliceMut<'a, T> {
    view: View<'a>,
    element: PhantomData<&'a mut [T]>,
}

impl<'a, T> Slice<'a, T> {
    pub(super) fn new(view: View<'a>) -> Self {
        Self { view, element: PhantomData }
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'a> {
        self.view
    }

    /// Returns the position of the first element.
    pub fn region(&self) -> Region {
        self.view.region()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        elements::<T>(self.view)
    }

    /// Returns whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the device of the buffer.
    pub fn device(&self) -> &'a Device {
        self.view.allocation.device()
    }

    /// Returns a slice of the elements in `range`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `range` is not inside the slice.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'a, T>> {
        self.view.part::<T>(range).map(Slice::new)
    }
}

impl<T: Element> Slice<'_, T> {
    /// Copies the elements to `host`, which has the same length.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the lengths differ, or an error of the device.
    pub fn download(&self, stream: &Stream, host: PinnedBuffer<T>) -> Result<Landing<T>> {
        self.view.download(stream, host)
    }
}

impl<'a, T> SliceMut<'a, T> {
    pub(super) fn new(view: View<'a>) -> Self {
        Self { view, element: PhantomData }
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        self.view
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        elements::<T>(self.view)
    }

    /// Returns whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the device of the buffer.
    pub fn device(&self) -> &'a Device {
        self.view.allocation.device()
    }

    /// Returns a slice of all elements, for reading.
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice::new(self.view)
    }

    /// Returns a slice of the elements in `range`, for reading.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `range` is not inside the slice.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        self.as_slice().slice(range)
    }

    /// Returns a slice of the elements in `range`, for writing. The library orders a use of them as
    /// `DeviceBuffer::slice_mut` says.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `range` is not inside the slice.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        self.view.part::<T>(range).map(SliceMut::new)
    }

    /// Returns a slice of the same elements with a shorter lifetime.
    pub fn reborrow(&mut self) -> SliceMut<'_, T> {
        SliceMut::new(self.view)
    }

    /// Splits the slice at `mid` into two slices. Streams may use the two at the same time.
    ///
    /// # Errors
    /// As `DeviceBuffer::split_at_mut`.
    pub fn split_at(self, mid: usize) -> Result<(Self, Self)> {
        let view = self.view;
        let first = view.part::<T>(..mid)?;
        let second =
            View { start: first.start + first.bytes, bytes: view.bytes - first.bytes, ..view };
        // Adds boundaries at both ends too: a slice may begin or end inside a piece.
        view.split([view.start, second.start, view.start + view.bytes])?;
        Ok((Self::new(first), Self::new(second)))
    }

    /// Splits the slice into slices of `size` elements. The last one may be shorter.
    ///
    /// # Errors
    /// As `DeviceBuffer::chunks_mut`.
    pub fn chunks(self, size: usize) -> Result<Vec<Self>> {
        Ok(self.view.chunks::<T>(size)?.into_iter().map(Self::new).collect())
    }
}

impl<T: Element> SliceMut<'_, T> {
    /// Copies all of `host` to the elements from index `at` on. Enqueues the copy and returns. The host block returns
    /// to its device's pool when the device has read it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if it does not fit, or an error of the device.
    pub fn upload(&mut self, stream: &Stream, at: usize, host: PinnedBuffer<T>) -> Result<Ticket> {
        let range = at..at.saturating_add(host.len());
        self.view.part::<T>(range)?.upload(stream, host)
    }

    /// Copies the elements to `host`, which has the same length.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn download(&self, stream: &Stream, host: PinnedBuffer<T>) -> Result<Landing<T>> {
        self.view.download(stream, host)
    }

    /// Copies `from`, which has the same length, into this slice.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn copy_from(&mut self, stream: &Stream, from: Slice<'_, T>) -> Result<Ticket> {
        self.view.copy_from(stream, from.view)
    }

    /// Writes `value` to every element.
    ///
    /// # Errors
    /// As `DeviceBuffer::fill`.
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<Ticket> {
        self.view.fill(stream, &value)
    }
}

impl SliceMut<'_, u64> {
    /// Writes the time at which the stream reaches this point to the first element. The unit is a nanosecond of the
    /// device's clock. Only the difference of two times of one device has a meaning. An H200's clock advances in steps
    /// of 32 ns.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the slice is empty,
    /// [`Error::Unsupported`](crate::Error::Unsupported) on a device without a clock, or an error of the device.
    pub fn timestamp(&mut self, stream: &Stream) -> Result<Ticket> {
        self.view.timestamp(stream)
    }
}

fn elements<T>(view: View<'_>) -> usize {
    (view.bytes as usize).checked_div(size_of::<T>()).unwrap_or(0)
}

macro_rules! debug {
    ($($name:literal $slice:ty;)*) => {$(
        impl<T> std::fmt::Debug for $slice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({} x {})", $name, self.len(), std::any::type_name::<T>())
            }
        }
    )*};
}

debug! {
    "Slice" Slice<'_, T>;
    "SliceMut" SliceMut<'_, T>;
}
