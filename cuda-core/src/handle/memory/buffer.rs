//! Typed device memory.

use std::{
    marker::PhantomData,
    ops::{Range, RangeBounds},
    sync::Arc,
};

use super::{
    pinned::PinnedBuffer,
    pool::MemoryPool,
    slice::{Slice, SliceMut},
};
use crate::{
    handle::{
        device::Device,
        memory::{pinned::Download, slice::View},
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
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let x = DeviceBuffer::<f32>::uninitialized(&stream, 100)?; // for a kernel that writes all of it
    /// assert_eq!(x.len(), 100);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or an error of the device.
    pub fn uninitialized(stream: &Stream, len: usize) -> Result<Self> {
        Self::allocated(stream, len, |bytes| stream.allocate(bytes))
    }

    /// Allocates a buffer of `len` elements from `pool`. The contents are unspecified (some earlier bytes of this
    /// device).
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let pool = MemoryPool::new(&device, PoolOptions::new().named("scratch"))?;
    /// let x = DeviceBuffer::<f32>::uninitialized_in(&stream, &pool, 25)?;
    /// assert_eq!(pool.statistics()?.used, 100);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`], [`Error::OutOfMemory`], or an error of the device.
    pub fn uninitialized_in(stream: &Stream, pool: &MemoryPool, len: usize) -> Result<Self> {
        Self::allocated(stream, len, |bytes| pool.allocate(stream, bytes))
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
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let read = |x: &DeviceBuffer<u32>| Ok::<_, Error>(x.download(&stream, 0..x.len(), device.pinned_uninitialized(x.len())?)?.wait()?.to_vec());
    /// # let host = |values: &[u32]| PinnedBuffer::copied_from(&device, values);
    /// let x = DeviceBuffer::<u32>::zeroed(&stream, 3)?;
    /// assert_eq!(read(&x)?, [0, 0, 0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`DeviceBuffer::uninitialized`].
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self> {
        let mut buffer = Self::uninitialized(stream, len)?;
        buffer.fill(stream, T::zeroed())?;
        Ok(buffer)
    }

    /// Allocates a buffer and uploads all of `host` to it.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let read = |x: &DeviceBuffer<u32>| Ok::<_, Error>(x.download(&stream, 0..x.len(), device.pinned_uninitialized(x.len())?)?.wait()?.to_vec());
    /// # let host = |values: &[u32]| PinnedBuffer::copied_from(&device, values);
    /// let x = DeviceBuffer::uploaded(&stream, PinnedBuffer::copied_from(&device, &[1u32, 2, 3])?)?;
    /// assert_eq!(read(&x)?, [1, 2, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`DeviceBuffer::uninitialized`].
    pub fn uploaded(stream: &Stream, host: PinnedBuffer<T>) -> Result<Self> {
        let mut buffer = Self::uninitialized(stream, host.len())?;
        buffer.upload(stream, 0, host)?;
        Ok(buffer)
    }

    /// Copies all of `host` to the elements from index `at` on. Enqueues the copy and returns. The host block returns
    /// to its device's pool when the device has read it.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let read = |x: &DeviceBuffer<u32>| Ok::<_, Error>(x.download(&stream, 0..x.len(), device.pinned_uninitialized(x.len())?)?.wait()?.to_vec());
    /// # let host = |values: &[u32]| PinnedBuffer::copied_from(&device, values);
    /// let mut x = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// x.upload(&stream, 1, PinnedBuffer::copied_from(&device, &[8, 9])?)?;
    /// assert_eq!(read(&x)?, [0, 8, 9, 0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it does not fit, or an error of the device.
    pub fn upload(&mut self, stream: &Stream, at: usize, host: PinnedBuffer<T>) -> Result<Ticket> {
        let range = at..at.saturating_add(host.len());
        self.view().part::<T>(range)?.upload(stream, host)
    }

    /// Copies the elements of `range` to `host`, which has the same length.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let read = |x: &DeviceBuffer<u32>| Ok::<_, Error>(x.download(&stream, 0..x.len(), device.pinned_uninitialized(x.len())?)?.wait()?.to_vec());
    /// # let host = |values: &[u32]| PinnedBuffer::copied_from(&device, values);
    /// let x = DeviceBuffer::uploaded(&stream, host(&[1, 2, 3])?)?;
    /// let download = x.download(&stream, 1..3, device.pinned_uninitialized(2)?)?; // enqueued
    /// assert_eq!(download.wait()?[..], [2, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it does not fit, or an error of the device.
    pub fn download(
        &self,
        stream: &Stream,
        range: Range<usize>,
        host: PinnedBuffer<T>,
    ) -> Result<Download<T>> {
        self.view().part::<T>(range)?.download(stream, host)
    }

    /// Copies `from`, which has the same length, into this buffer.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let read = |x: &DeviceBuffer<u32>| Ok::<_, Error>(x.download(&stream, 0..x.len(), device.pinned_uninitialized(x.len())?)?.wait()?.to_vec());
    /// # let host = |values: &[u32]| PinnedBuffer::copied_from(&device, values);
    /// let x = DeviceBuffer::uploaded(&stream, host(&[1, 2, 3])?)?;
    /// let mut y = DeviceBuffer::<u32>::zeroed(&stream, 2)?;
    /// y.copy_from(&stream, x.slice(1..)?)?;
    /// assert_eq!(read(&y)?, [2, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the lengths differ, or an error of the device.
    pub fn copy_from(&mut self, stream: &Stream, from: Slice<'_, T>) -> Result<Ticket> {
        self.view().copy_from(stream, from.view())
    }

    /// Writes `value` to every element.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let read = |x: &DeviceBuffer<u32>| Ok::<_, Error>(x.download(&stream, 0..x.len(), device.pinned_uninitialized(x.len())?)?.wait()?.to_vec());
    /// # let host = |values: &[u32]| PinnedBuffer::copied_from(&device, values);
    /// let mut x = DeviceBuffer::<u32>::uninitialized(&stream, 3)?;
    /// x.fill(&stream, 7)?;
    /// assert_eq!(read(&x)?, [7, 7, 7]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] for elements that are not a repetition of one, two or four bytes, or an error of the device.
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
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let x = DeviceBuffer::<u32>::zeroed(&stream, 3)?;
    /// assert!(!x.is_variable()); // buffers of `Module::variable` are
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_variable(&self) -> bool {
        self.allocation.is_variable()
    }

    pub(super) fn into_allocation(self) -> Arc<Allocation> {
        self.allocation
    }

    /// Returns the number of elements.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// assert_eq!(DeviceBuffer::<f64>::zeroed(&stream, 3)?.len(), 3); // elements, not bytes
    /// # Ok::<(), Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer has no elements.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// assert!(DeviceBuffer::<f64>::zeroed(&stream, 0)?.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device of this buffer.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// assert_eq!(DeviceBuffer::<u8>::zeroed(&stream, 1)?.device(), &device);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        self.allocation.device()
    }

    /// Returns the allocation that holds the elements. Parts of a split buffer share it.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let (a, b) = DeviceBuffer::<u32>::zeroed(&stream, 4)?.split_at(2)?;
    /// assert_eq!(a.allocation().bytes(), 16); // of both parts
    /// assert!(std::sync::Arc::ptr_eq(a.allocation(), b.allocation()));
    /// # Ok::<(), Error>(())
    /// ```
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
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let read = |x: &DeviceBuffer<u32>| Ok::<_, Error>(x.download(&stream, 0..x.len(), device.pinned_uninitialized(x.len())?)?.wait()?.to_vec());
    /// # let host = |values: &[u32]| PinnedBuffer::copied_from(&device, values);
    /// let x = DeviceBuffer::uploaded(&stream, host(&[1, 2])?)?;
    /// let mut y = DeviceBuffer::<u32>::zeroed(&stream, 2)?;
    /// y.copy_from(&stream, x.as_slice())?;
    /// assert_eq!(read(&y)?, [1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice::new(self.view())
    }

    /// Returns a slice of the elements in `range`, for reading.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let x = DeviceBuffer::<u32>::zeroed(&stream, 10)?;
    /// assert_eq!(x.slice(2..5)?.len(), 3);
    /// assert!(x.slice(5..11).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they are not inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        self.view().part::<T>(range).map(Slice::new)
    }

    /// Returns a slice of all elements, for writing.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let read = |x: &DeviceBuffer<u32>| Ok::<_, Error>(x.download(&stream, 0..x.len(), device.pinned_uninitialized(x.len())?)?.wait()?.to_vec());
    /// # let host = |values: &[u32]| PinnedBuffer::copied_from(&device, values);
    /// let mut x = DeviceBuffer::<u32>::zeroed(&stream, 2)?;
    /// x.as_slice_mut().fill(&stream, 4)?;
    /// assert_eq!(read(&x)?, [4, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut::new(self.view())
    }

    /// Returns a slice of the elements in `range`, for writing. The library orders a use of this slice like a use of
    /// every piece that it touches. A buffer that was never split is one piece: to use parts on several streams at the
    /// same time, split it.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let read = |x: &DeviceBuffer<u32>| Ok::<_, Error>(x.download(&stream, 0..x.len(), device.pinned_uninitialized(x.len())?)?.wait()?.to_vec());
    /// # let host = |values: &[u32]| PinnedBuffer::copied_from(&device, values);
    /// let mut x = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// x.slice_mut(1..3)?.fill(&stream, 9)?;
    /// assert_eq!(read(&x)?, [0, 9, 9, 0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `range` is not inside the buffer.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        self.view().part::<T>(range).map(SliceMut::new)
    }

    /// Splits the buffer at `mid` into two slices, for writing. Streams may use the two at the same time.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let (stream, other) = (device.new_stream()?, device.new_stream()?);
    /// # let read = |x: &DeviceBuffer<u32>| Ok::<_, Error>(x.download(&stream, 0..x.len(), device.pinned_uninitialized(x.len())?)?.wait()?.to_vec());
    /// # let host = |values: &[u32]| PinnedBuffer::copied_from(&device, values);
    /// let mut x = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// let (mut first, mut second) = x.split_at_mut(2)?;
    /// first.fill(&stream, 1)?;
    /// second.fill(&other, 2)?; // at the same time
    /// assert_eq!(read(&x)?, [1, 1, 2, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `mid` is not inside, or if the allocation has 4096 parts.
    pub fn split_at_mut(&mut self, mid: usize) -> Result<(SliceMut<'_, T>, SliceMut<'_, T>)> {
        self.as_slice_mut().split_at(mid)
    }

    /// Splits the buffer into slices of `size` elements, for writing. The last one may be shorter. Streams may use them
    /// at the same time.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let read = |x: &DeviceBuffer<u32>| Ok::<_, Error>(x.download(&stream, 0..x.len(), device.pinned_uninitialized(x.len())?)?.wait()?.to_vec());
    /// # let host = |values: &[u32]| PinnedBuffer::copied_from(&device, values);
    /// let mut x = DeviceBuffer::<u32>::zeroed(&stream, 5)?;
    /// for (i, mut chunk) in x.chunks_mut(2)?.into_iter().enumerate() {
    ///     chunk.fill(&device.lend_stream(0)?, i as u32)?; // each on a stream of its own
    /// }
    /// assert_eq!(read(&x)?, [0, 0, 1, 1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `size` is 0, or if the allocation would have more than 4096 parts.
    pub fn chunks_mut(&mut self, size: usize) -> Result<Vec<SliceMut<'_, T>>> {
        self.as_slice_mut().chunks(size)
    }

    /// Splits the buffer at `mid` into two buffers. They share the allocation, which is freed after the last use of
    /// both. Streams may use them at the same time.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let (first, second) = DeviceBuffer::<u32>::zeroed(&stream, 5)?.split_at(2)?;
    /// assert_eq!((first.len(), second.len()), (2, 3)); // two buffers, for two tasks
    /// # Ok::<(), Error>(())
    /// ```
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
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let parts = DeviceBuffer::<u32>::zeroed(&stream, 5)?.chunks(2)?;
    /// assert_eq!(parts.iter().map(DeviceBuffer::len).collect::<Vec<_>>(), [2, 2, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`chunks_mut`](Self::chunks_mut). The buffer is then dropped.
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
