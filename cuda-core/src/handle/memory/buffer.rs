//! Typed device memory.

use std::{
    marker::PhantomData,
    ops::{Range, RangeBounds},
    sync::Arc,
};

use super::{
    landing::Landing,
    pinned::PinnedBuffer,
    pool::MemoryPool,
    slice::{Slice, SliceMut},
    view::View,
};
use crate::{
    handle::{
        device::Device,
        stream::{Allocation, Stream},
    },
    protocol::{Element, Error, Result, Ticket, assert_has_bytes},
};

/// Owned device memory for `len` elements, freed in stream order after its last use.
///
/// Dropping one never blocks and calls no driver. The library orders uses on several streams. A buffer is shared as
/// `Arc<DeviceBuffer<T>>`, or split into owned parts ([`split_at`](DeviceBuffer::split_at)), which are buffers
/// themselves and share one allocation.
pub struct DeviceBuffer<T> {
    allocation: Arc<Allocation>,
    /// Bytes from the start of the allocation.
    start: u64,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> DeviceBuffer<T> {
    /// Allocates a buffer of `len` elements. The contents are unspecified (some earlier bytes of this device).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or an error of the device.
    pub fn uninitialised(stream: &Stream, len: usize) -> Result<Self> {
        Self::allocated(stream, len, |bytes| stream.allocate(bytes))
    }

    /// Allocates a buffer of `len` elements from `pool`. Otherwise as [`DeviceBuffer::uninitialised`].
    ///
    /// # Errors
    /// [`Error::WrongDevice`], [`Error::OutOfMemory`], or an error of the device.
    pub fn uninitialised_in(stream: &Stream, pool: &MemoryPool, len: usize) -> Result<Self> {
        Self::allocated(stream, len, |bytes| stream.allocate_in(pool, bytes))
    }

    fn allocated(
        stream: &Stream,
        len: usize,
        allocate: impl FnOnce(u64) -> Result<Arc<Allocation>>,
    ) -> Result<Self> {
        const { assert_has_bytes::<T>() };
        let total = stream.device().info().memory;
        let out_of_memory =
            Error::OutOfMemory { requested: u64::MAX, free: total, total, pool: None };
        let bytes = (len as u64).checked_mul(size_of::<T>() as u64).ok_or(out_of_memory)?;
        let allocation = allocate(bytes)?;
        Ok(Self { allocation, start: 0, len, element: PhantomData })
    }

    /// Allocates a buffer of `len` zeroed elements.
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninitialised`].
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self> {
        let mut buffer = Self::uninitialised(stream, len)?;
        buffer.fill(stream, T::zeroed())?;
        Ok(buffer)
    }

    /// Allocates a buffer and uploads all of `host` to it.
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninitialised`].
    pub fn uploaded(stream: &Stream, host: PinnedBuffer<T>) -> Result<Self> {
        let mut buffer = Self::uninitialised(stream, host.len())?;
        buffer.upload(stream, 0, host)?;
        Ok(buffer)
    }

    /// Copies all of `host` to the elements from index `at` on. Enqueues the copy and returns. The host block returns
    /// to its device's pool when the device has read it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it does not fit, or an error of the device.
    pub fn upload(&mut self, stream: &Stream, at: usize, host: PinnedBuffer<T>) -> Result<Ticket> {
        let range = at..at.saturating_add(host.len());
        self.view().part::<T>(range)?.upload(stream, host)
    }

    /// Copies the elements of `range` to `host`, which has the same length.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it does not fit, or an error of the device.
    pub fn download(
        &self,
        stream: &Stream,
        range: Range<usize>,
        host: PinnedBuffer<T>,
    ) -> Result<Landing<T>> {
        self.view().part::<T>(range)?.download(stream, host)
    }

    /// Copies `from`, which has the same length, into this buffer.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the lengths differ, or an error of the device.
    pub fn copy_from(&mut self, stream: &Stream, from: Slice<'_, T>) -> Result<Ticket> {
        self.view().copy_from(stream, from.view())
    }

    /// Writes `value` to every element.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for elements that are not a repetition of one, two or four bytes, or an error of the device.
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<Ticket> {
        self.view().fill(stream, &value)
    }
}

impl<T> DeviceBuffer<T> {
    /// Returns a buffer of `len` elements over the whole of an allocation, such as the variable of a module.
    pub(crate) fn of_allocation(allocation: Arc<Allocation>, len: usize) -> Self {
        Self { allocation, start: 0, len, element: PhantomData }
    }

    /// Returns whether this is a variable of a module. Other handles may have the same memory.
    pub fn is_variable(&self) -> bool {
        self.allocation.is_variable()
    }

    pub(super) fn into_allocation(self) -> Arc<Allocation> {
        self.allocation
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device of this buffer.
    pub fn device(&self) -> &Device {
        self.allocation.device()
    }

    /// Returns the allocation that holds the elements. Parts of a split buffer share it.
    #[inline]
    pub fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        let bytes = self.len as u64 * size_of::<T>() as u64;
        View { allocation: &self.allocation, start: self.start, bytes }
    }

    /// Returns a slice of all elements, for reading.
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice::new(self.view())
    }

    /// Returns a slice of the elements in `range`, for reading.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they are not inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        self.view().part::<T>(range).map(Slice::new)
    }

    /// Returns a slice of all elements, for writing.
    pub fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut::new(self.view())
    }

    /// Returns a slice of the elements in `range`, for writing. The library orders a use of this slice like a use of
    /// every piece that it touches. A buffer that was never split is one piece: to use parts on several streams at the
    /// same time, split it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `range` is not inside the buffer.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        self.view().part::<T>(range).map(SliceMut::new)
    }

    /// Splits the buffer at `mid` into two slices, for writing. Streams may use the two at the same time.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `mid` is not inside, or if the allocation has 4096 parts.
    pub fn split_at_mut(&mut self, mid: usize) -> Result<(SliceMut<'_, T>, SliceMut<'_, T>)> {
        self.as_slice_mut().split_at(mid)
    }

    /// Splits the buffer into slices of `size` elements, for writing. The last one may be shorter. Streams may use them
    /// at the same time.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `size` is 0, or if the allocation would have more than 4096 parts.
    pub fn chunks_mut(&mut self, size: usize) -> Result<Vec<SliceMut<'_, T>>> {
        self.as_slice_mut().chunks(size)
    }

    /// Splits the buffer at `mid` into two buffers. They share the allocation, which is freed after the last use of
    /// both. Streams may use them at the same time.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `mid` is not inside, or if the allocation has 4096 parts. The buffer is then dropped.
    pub fn split_at(self, mid: usize) -> Result<(Self, Self)> {
        let first = self.view().part::<T>(..mid)?;
        let second = self.len - mid;
        let (at, allocation) = (self.start + first.bytes, self.allocation.clone());
        self.allocation.split([at])?;
        let second = Self { allocation, start: at, len: second, element: PhantomData };
        Ok((Self { len: mid, ..self }, second))
    }

    /// Splits the buffer into buffers of `size` elements. The last one may be shorter. They share the allocation.
    ///
    /// # Errors
    /// As [`chunks_mut`](Self::chunks_mut). The buffer is then dropped.
    pub fn chunks(self, size: usize) -> Result<Vec<Self>> {
        let chunk = |chunk: View<'_>| Self {
            allocation: chunk.allocation.clone(),
            start: chunk.start,
            len: Slice::<T>::new(chunk).len(),
            element: PhantomData,
        };
        Ok(self.view().chunks::<T>(size)?.into_iter().map(chunk).collect())
    }
}

impl<T> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (len, ty) = (self.len, std::any::type_name::<T>());
        write!(f, "DeviceBuffer({len} x {ty} on {})", self.device().info().address)
    }
}
