//! Typed device memory: buffers, and slices of them, which are borrowed to read, borrowed to write, or shared.
//!
//! # Rules of slices
//! A [`SliceMut`] has exclusive access to its bytes, as `&mut` does: it comes from an exclusive borrow, and its parts
//! do not overlap. A split adds the boundary to the allocation before the parts exist, so uses of the parts are ordered
//! separately. Forgetting a slice is sound.
//!
//! The memory of a scalar and of a variable is an exception: other handles may write it too. Its submissions take
//! turns, and declared kernels check it ([`Arguments::require_unaliased`](crate::Arguments::require_unaliased)). A
//! scalar has one element, so it has no parts.
//!
//! # Views
//! A [`View`] is a range of bytes of an allocation, with the copies and fills on it. Buffers and slices own or borrow a
//! view under different rules, and submit the same work. A handle writes through a view only while it has exclusive
//! access to the bytes, or takes the turns of a marked allocation. It reads through a view only while no other handle
//! can write the bytes, by the same rules.

use std::{
    marker::PhantomData,
    ops::{Bound, Range, RangeBounds},
    sync::Arc,
};

use crate::{
    handle::{
        device::Device,
        memory::{
            pinned::{Download, PinnedBuffer, start_of},
            pool::MemoryPool,
        },
        stream::{Allocation, Attached, Keep, Operand, Stream},
    },
    order::timeline::Until,
    protocol::{
        Access, Element, Error, Limit, Misuse, Pattern, Quantity, Region, Result, Ticket, Work,
        assert_has_bytes,
    },
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

impl<T> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (len, ty) = (self.len, std::any::type_name::<T>());
        write!(f, "DeviceBuffer({len} x {ty} on {})", self.device().info().address)
    }
}

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
    pub fn download(&self, stream: &Stream, host: PinnedBuffer<T>) -> Result<Download<T>> {
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

    /// Returns a slice of the elements in `range`, for writing. The library orders a use of the slice like a use of
    /// every piece that it touches.
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
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `mid` is not inside the slice, or if the allocation already
    /// has 4096 parts.
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
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `size` is 0, or if the allocation would have more than 4096
    /// parts.
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
    /// The errors of [`upload`](Self::upload).
    pub fn download(&self, stream: &Stream, host: PinnedBuffer<T>) -> Result<Download<T>> {
        self.view.download(stream, host)
    }

    /// Copies `from`, which has the same length, into this slice.
    ///
    /// # Errors
    /// The errors of [`upload`](Self::upload).
    pub fn copy_from(&mut self, stream: &Stream, from: Slice<'_, T>) -> Result<Ticket> {
        self.view.copy_from(stream, from.view)
    }

    /// Writes `value` to every element.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) for elements that are not a repetition of one, two or four bytes, or an
    /// error of the device.
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

/// A slice of a shared device buffer, for reading. It keeps the buffer alive.
pub struct SharedSlice<T> {
    buffer: Arc<DeviceBuffer<T>>,
    range: Range<usize>,
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

/// Bytes of an allocation.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) allocation: &'a Arc<Allocation>,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn region(self) -> Region {
        self.allocation.region(self.start)
    }

    #[inline]
    pub(crate) fn operand(self, access: Access) -> Operand<'a> {
        Operand::new(self.allocation, self.start..self.start + self.bytes, access)
    }

    /// The elements of `range`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they are not inside.
    pub(super) fn part<T>(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let size = size_of::<T>() as u64;
        // The size is not zero: no buffer has elements without bytes.
        let len = self.bytes.checked_div(size).unwrap_or(0);
        let range = bounds(range, len);
        if range.start > range.end || range.end as u64 > len {
            return Err(outside(&range, len));
        }
        let start = self.start + range.start as u64 * size;
        Ok(Self { start, bytes: range.len() as u64 * size, ..self })
    }

    /// Adds boundaries to the allocation at these bytes of it, so that the parts on both sides are ordered separately.
    /// The caller has the parts to itself.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] at the limit of pieces. No boundary is added then.
    pub(super) fn split(self, at: impl IntoIterator<Item = u64>) -> Result<()> {
        let end = self.allocation.bytes();
        self.allocation.split(at.into_iter().filter(|at| *at < end))
    }

    /// Splits into views of `size` elements. The last one may be shorter. Adds boundaries at the ends too: a view may
    /// begin or end inside a piece.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `size` is 0, or as [`split`](Self::split).
    pub(super) fn chunks<T>(self, size: usize) -> Result<Vec<Self>> {
        let bytes = (size as u64).saturating_mul(size_of::<T>() as u64);
        Limit::AtLeast(1).check("a chunk of a buffer", Quantity::Bytes, bytes)?;
        if self.bytes <= bytes {
            return Ok(vec![self]);
        }
        let starts = || (0..self.bytes.div_ceil(bytes)).map(|chunk| chunk * bytes);
        self.split(starts().chain([self.bytes]).map(|at| self.start + at))?;
        let chunk = |at| View { start: self.start + at, bytes: bytes.min(self.bytes - at), ..self };
        Ok(starts().map(chunk).collect())
    }

    /// Copies all of `host` here.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the lengths differ, or an error of the device.
    pub(crate) fn upload<T: Element>(
        self,
        stream: &Stream,
        host: PinnedBuffer<T>,
    ) -> Result<Ticket> {
        self.same_length("an upload", host.len() as u64 * size_of::<T>() as u64)?;
        if self.bytes == 0 {
            return Ok(nothing_on(stream));
        }
        let pooled = host.into_pooled();
        let work = Work::Upload { from: start_of(&pooled), to: self.region(), bytes: self.bytes };
        let block = pooled.block().clone();
        let keep = Keep { until: Until::Accepted, resource: pooled };
        // SAFETY: the copy writes this view. The caller gave the host buffer up, so no other code writes the block, and
        // `keep` holds it.
        unsafe {
            stream.submit(
                &work,
                &[self.operand(Access::Write)],
                Attached { keep: Some(keep), host: Some(&block), ..Attached::default() },
            )
        }
    }

    /// Copies all of this to `host`.
    ///
    /// # Errors
    /// The errors of [`upload`](Self::upload).
    pub(crate) fn download<T: Element>(
        self,
        stream: &Stream,
        host: PinnedBuffer<T>,
    ) -> Result<Download<T>> {
        let len = host.len();
        self.same_length("a download", len as u64 * size_of::<T>() as u64)?;
        let pooled = host.into_pooled();
        let ticket = if self.bytes == 0 {
            nothing_on(stream)
        } else {
            let (from, to) = (self.region(), start_of(&pooled));
            let work = Work::Download { from, to, bytes: self.bytes };
            let keep = Keep { until: Until::Complete, resource: pooled.clone() };
            let operand = self.operand(Access::Read);
            // SAFETY: the copy reads this view. The download gives the block out when the copy is complete.
            unsafe {
                stream.submit(
                    &work,
                    &[operand],
                    Attached {
                        keep: Some(keep),
                        host: Some(pooled.block()),
                        ..Attached::default()
                    },
                )
            }?
        };
        Ok(Download::new(stream, ticket, pooled, len))
    }

    /// Copies all of `from` here.
    ///
    /// # Errors
    /// The errors of [`upload`](Self::upload).
    pub(super) fn copy_from(self, stream: &Stream, from: View<'_>) -> Result<Ticket> {
        self.same_length("a copy", from.bytes)?;
        if self.bytes == 0 {
            return Ok(nothing_on(stream));
        }
        let work = Work::Copy { from: from.region(), to: self.region(), bytes: self.bytes };
        let operands = [from.operand(Access::Read), self.operand(Access::Write)];
        // SAFETY: the copy reads `from` and writes this view.
        unsafe { stream.submit(&work, &operands, Attached::default()) }
    }

    /// Writes `value` to every element.
    ///
    /// # Errors
    /// [`Error::Misuse`] for elements that are not a repetition of one, two or four bytes, or an error of the device.
    pub(crate) fn fill<T: Element>(self, stream: &Stream, value: &T) -> Result<Ticket> {
        if self.bytes == 0 {
            return Ok(nothing_on(stream));
        }
        let Some(pattern) = pattern_of(bytemuck::bytes_of(value)) else {
            return Err(Misuse::FillPattern { element: std::any::type_name::<T>() }.into());
        };
        let work = Work::Fill { to: self.region(), pattern, count: self.bytes / pattern.bytes() };
        // SAFETY: the fill writes this view.
        unsafe { stream.submit(&work, &[self.operand(Access::Write)], Attached::default()) }
    }

    /// Writes the device's time to the first eight bytes.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there are fewer, or an error of the device.
    pub(super) fn timestamp(self, stream: &Stream) -> Result<Ticket> {
        let to = self.part::<u64>(0..1)?;
        let work = Work::Timestamp { to: to.region() };
        // SAFETY: the device writes the eight bytes of `to`.
        unsafe { stream.submit(&work, &[to.operand(Access::Write)], Attached::default()) }
    }

    fn same_length(self, what: &'static str, other: u64) -> Result<()> {
        Limit::Exactly(self.bytes).check(what, Quantity::Bytes, other)
    }
}

/// Returns the error for elements that are not inside a buffer of `len` elements.
#[cold]
fn outside(range: &Range<usize>, len: u64) -> Error {
    let (start, end) = (range.start as u64, range.end as u64);
    let (quantity, given, most) =
        if end > len { (Quantity::End, end, len) } else { (Quantity::Start, start, end) };
    let range = format!("the range {range:?} of a buffer");
    Error::out_of_range(range, quantity, given, Limit::AtMost(most))
}

/// The elements of `range` among `len` elements. They may lie beyond the end.
pub(super) fn bounds(range: impl RangeBounds<usize>, len: u64) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => usize::try_from(len).unwrap_or(usize::MAX),
    };
    start..end
}

/// Whether [`View::fill`] takes the value.
pub(super) fn is_pattern<T: Element>(value: &T) -> bool {
    pattern_of(bytemuck::bytes_of(value)).is_some()
}

/// The shortest pattern whose repetition is `bytes`.
fn pattern_of(bytes: &[u8]) -> Option<Pattern> {
    let repeats = |n: usize| {
        bytes.len().is_multiple_of(n) && bytes.chunks(n).all(|chunk| *chunk == bytes[..n])
    };
    match bytes {
        [first, ..] if repeats(1) => Some(Pattern::Byte(*first)),
        [a, b, ..] if repeats(2) => Some(Pattern::Half(u16::from_ne_bytes([*a, *b]))),
        [a, b, c, d, ..] if repeats(4) => Some(Pattern::Word(u32::from_ne_bytes([*a, *b, *c, *d]))),
        _ => None,
    }
}

/// The ticket that a call returns if it has nothing to submit. Number 0 counts as complete.
pub(super) fn nothing_on(stream: &Stream) -> Ticket {
    Ticket { stream: stream.id(), number: 0 }
}

#[cfg(all(test, not(loom)))]
mod view_tests {
    use super::*;

    #[test]
    fn patterns_are_the_shortest_repetition() {
        assert_eq!(pattern_of(&[7; 8]), Some(Pattern::Byte(7)));
        assert_eq!(pattern_of(&[1, 2, 1, 2]), Some(Pattern::Half(u16::from_ne_bytes([1, 2]))));
        let word = Pattern::Word(u32::from_ne_bytes([1, 2, 3, 4]));
        assert_eq!(pattern_of(&[1, 2, 3, 4, 1, 2, 3, 4]), Some(word));
        assert_eq!(pattern_of(&[1, 2, 3]), None);
        assert_eq!(pattern_of(&1.0f64.to_ne_bytes()), None);
        assert_eq!(pattern_of(&[]), None);
    }
}
