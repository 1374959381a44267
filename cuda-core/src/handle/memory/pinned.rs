//! Typed host memory that a device copies from and to at full speed.
//!
//! # Rules
//! A [`PinnedBuffer`] has exclusive access to its block: while it exists, no submission in flight names the block. An
//! upload consumes it. A download consumes it too and returns a [`Download`](super::Download), which gives the
//! `PinnedBuffer` back only when the stream has passed the copy. The stream retains the block, so a `PinnedBuffer` or a
//! `Download` may be dropped or forgotten at any time. A [`Pinning`] is a request for a new `PinnedBuffer`.

use std::{
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::{
    handle::{device::Device, stream::Stream},
    protocol::{Element, Error, HostBlock, HostRegion, Result, Ticket, assert_has_bytes},
    runtime::{Cancelled, PooledBlock},
    sync::Receiver,
};

/// Host memory of `len` elements, pinned if the device is a GPU. It is read and written like a slice.
pub struct PinnedBuffer<T> {
    pooled: Arc<PooledBlock>,
    len: usize,
    element: PhantomData<T>,
}

impl Device {
    /// Allocates a zeroed host buffer of `len` elements, for copies at full speed. May block for as long as the driver
    /// pins memory: inside a poll use [`start_pinning`](Device::start_pinning).
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let mut host = device.pinned::<f32>(4)?; // zeroed
    /// host[1] = 2.5;
    /// let buffer = DeviceBuffer::uploaded(&stream, host)?; // one copy, by the device
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn pinned<T: Element>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::new(self, len)
    }

    /// Allocates a buffer as [`pinned`](Device::pinned) does, but does not zero it. The buffer holds bytes of an
    /// earlier copy. Use it as the target of a download.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// let host = device.pinned_uninitialized(4)?; // the download writes all of it
    /// assert_eq!(buffer.download(&stream, 0..4, host)?.wait()?[..], [0; 4]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn pinned_uninitialized<T: Element>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::uninitialized(self, len)
    }
}

/// Allocates a buffer as [`pinned_uninitialized`](Device::pinned_uninitialized) does, but only from idle memory
/// that is already pinned. `None` if there is none.
///
/// ```
/// # use cuda_core::{*, internals::idle_pinned};
/// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
/// assert!(idle_pinned::<u8>(&device, 100)?.is_none()); // nothing was pinned yet
/// drop(device.pinned::<u8>(100)?);
/// assert_eq!(idle_pinned::<u8>(&device, 100)?.map(|host| host.len()), Some(100));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::OutOfHostMemory`] if `len` elements exceed the address space.
pub fn idle_pinned<T: Element>(device: &Device, len: usize) -> Result<Option<PinnedBuffer<T>>> {
    let idle = device.core().host.take_idle(bytes_of::<T>(len)?);
    Ok(idle.map(|pooled| PinnedBuffer::of_pooled(pooled, len)))
}

impl<T: Element> PinnedBuffer<T> {
    /// A zeroed buffer.
    pub(super) fn new(device: &Device, len: usize) -> Result<Self> {
        let mut buffer = Self::uninitialized(device, len)?;
        buffer.fill(T::zeroed());
        Ok(buffer)
    }

    /// A buffer with the bytes of the block's last use.
    pub(super) fn uninitialized(device: &Device, len: usize) -> Result<Self> {
        let core = device.core();
        let pooled = core.host.take(&*core.backend, bytes_of::<T>(len)?)?;
        Ok(Self::of_pooled(pooled, len))
    }

    /// The first `len` elements of a block that no submission in flight names.
    pub(super) fn of_pooled(pooled: Arc<PooledBlock>, len: usize) -> Self {
        Self { pooled, len, element: PhantomData }
    }

    /// Creates a buffer with a copy of `values`.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn copied_from(device: &Device, values: &[T]) -> Result<Self> {
        let mut buffer = Self::uninitialized(device, values.len())?;
        buffer.copy_from_slice(values);
        Ok(buffer)
    }

    /// Passes the block to a submission.
    pub(super) fn into_pooled(self) -> Arc<PooledBlock> {
        self.pooled
    }
}

impl<T: Element> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: while a `PinnedBuffer` has the block, no submission in flight names it, and none is made.
        let bytes = unsafe { self.pooled.block().shared_bytes() };
        // SAFETY: blocks are aligned for every element and hold at least `len` of them, initialized;
        // an `Element` takes any bits.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), self.len) }
    }
}

impl<T: Element> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let start = self.pooled.block().as_ptr();
        // SAFETY: blocks are aligned for every element and hold at least `len` of them, initialized; an `Element` takes
        // any bits. While a `PinnedBuffer` has the block, no other code accesses its bytes, and this one is borrowed
        // exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), self.len) }
    }
}

impl<T: Element> std::fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedBuffer({} x {})", self.len, std::any::type_name::<T>())
    }
}

/// The size of `len` elements in bytes.
pub(super) fn bytes_of<T: Element>(len: usize) -> Result<usize> {
    const { assert_has_bytes::<T>() };
    const { assert!(align_of::<T>() <= HostBlock::ALIGN, "elements are aligned to 64 bytes at most") };
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
    bytes.ok_or(Error::OutOfHostMemory { requested: u64::MAX })
}

/// The start of a pooled block.
pub(super) fn start_of(pooled: &PooledBlock) -> HostRegion {
    HostRegion { block: pooled.block().id(), offset: 0 }
}

/// A download in flight. Returns the pinned buffer when the bytes have arrived. A device may skip the copy if this is
/// dropped before that.
pub struct Download<T> {
    /// A clone of the handle that submitted the download. It counts no submissions.
    stream: Stream,
    ticket: Ticket,
    /// `None` after the buffer was taken.
    buffer: Option<(Arc<PooledBlock>, usize)>,
    element: PhantomData<T>,
}

impl<T: Element> Download<T> {
    /// `pooled` is the block that the submission `ticket` of `stream` fills with `len` elements.
    pub(super) fn new(
        stream: &Stream,
        ticket: Ticket,
        pooled: Arc<PooledBlock>,
        len: usize,
    ) -> Self {
        Self { stream: stream.clone(), ticket, buffer: Some((pooled, len)), element: PhantomData }
    }

    /// Returns the ticket of the submission that fills the buffer.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.buffer.as_ref().map_or(0, |(_, len)| *len)
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the buffer if the download is known to be complete, else `None`. Does not ask the device.
    ///
    /// # Errors
    /// The failure of the download.
    pub fn try_take(&mut self) -> Option<Result<PinnedBuffer<T>>> {
        let outcome = self.stream.timeline().progress.outcome(self.ticket.number)?;
        Some(outcome.and_then(|()| self.take()))
    }

    /// Blocks the calling thread until the download is complete.
    ///
    /// # Errors
    /// The failure of the download, or the error that lost the device.
    pub fn wait(mut self) -> Result<PinnedBuffer<T>> {
        if let Some(arrived) = self.try_take() {
            return arrived;
        }
        self.stream.synchronize_to(self.ticket.number)?;
        self.try_take().unwrap_or(Err(Error::AlreadyEnded))
    }

    /// Called when the stream is known to have passed the copy.
    fn take(&mut self) -> Result<PinnedBuffer<T>> {
        let (pooled, len) = self.buffer.take().ok_or(Error::AlreadyEnded)?;
        Ok(PinnedBuffer::of_pooled(pooled, len))
    }
}

impl<T> Drop for Download<T> {
    /// Cancels the copy, because nothing else reads the block.
    fn drop(&mut self) {
        let Ticket { stream, number } = self.ticket;
        if self.buffer.is_some() {
            let core = self.stream.device().core();
            core.cancel(Cancelled { stream, first: number, last: number, downloads: true });
        }
    }
}

/// A request for a pinned buffer. If a GPU has no idle block of that size, a helper thread pins a new one.
pub struct Pinning<T> {
    device: Device,
    len: usize,
    /// Present once the helper thread pins memory.
    running: Option<Receiver<Result<Arc<PooledBlock>>>>,
    /// Whether the result was taken.
    taken: bool,
    element: PhantomData<T>,
}

impl Device {
    /// Starts to allocate a buffer as [`pinned_uninitialized`](Device::pinned_uninitialized) does, without blocking. If
    /// a GPU has no idle block of that size, a helper thread pins a new one.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let mut pinning = device.start_pinning::<f32>(1 << 10); // a helper thread pins the memory of a GPU
    /// let host = pinning.wait()?; // or `poll` it in a task
    /// assert_eq!(host.len(), 1 << 10);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn start_pinning<T: Element>(&self, len: usize) -> Pinning<T> {
        Pinning { device: self.clone(), len, running: None, taken: false, element: PhantomData }
    }
}

impl<T: Element> Pinning<T> {
    /// Polls for the buffer. It holds the bytes of an earlier copy.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`]; [`Error::Host`] if the helper thread cannot be started or the backend panicked on
    /// it; [`Error::AlreadyEnded`] after the result of the helper thread was taken.
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<PinnedBuffer<T>>> {
        if self.taken {
            return Poll::Ready(Err(Error::AlreadyEnded));
        }
        if self.running.is_none() {
            let bytes = bytes_of::<T>(self.len)?;
            let core = self.device.core();
            if let Some(idle) = core.host.take_idle(bytes) {
                return Poll::Ready(Ok(PinnedBuffer::of_pooled(idle, self.len)));
            }
            if !core.capabilities.slow_host_blocks {
                return Poll::Ready(self.wait());
            }
            self.running = Some(self.start(bytes)?);
        }
        let Some(running) = &mut self.running else { return Poll::Ready(Err(Error::AlreadyEnded)) };
        let pooled = ready!(running.poll(task)).unwrap_or_else(|| Err(panicked()));
        self.taken = true;
        Poll::Ready(pooled.map(|pooled| PinnedBuffer::of_pooled(pooled, self.len)))
    }

    /// Allocates the buffer on the calling thread. This may block while the driver pins memory.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn wait(&mut self) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::uninitialized(&self.device, self.len)
    }

    #[cold]
    fn start(&self, bytes: usize) -> Result<Receiver<Result<Arc<PooledBlock>>>> {
        let core = self.device.core();
        let task = {
            let core = core.clone();
            move || core.host.take(&*core.backend, bytes)
        };
        let what = "failed to start the helper thread of the device";
        core.helper.start(task).map_err(|error| Error::host(what, &error))
    }
}

#[cold]
fn panicked() -> Error {
    let what = "pinning host memory on the helper thread of the device".into();
    Error::Host { what, detail: "the backend panicked; report this bug of the backend".into() }
}

impl<T> std::fmt::Debug for Pinning<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinning({} x {})", self.len, std::any::type_name::<T>())
    }
}
