//! Typed host memory that a device copies from and to at full speed.
//!
//! # Rules
//! A [`PinnedBuffer`] has exclusive access to its block: while it exists, no submission in flight names the block. An
//! upload consumes it. A download consumes it too and returns a [`Landing`], which gives the `PinnedBuffer` back only
//! when the stream has passed the copy. The stream retains the block, so a `PinnedBuffer` or a `Landing` may be dropped
//! or forgotten at any time.

use std::{
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::{blocking_job::BlockingJob, device::Device, stream::Stream};
use crate::{
    protocol::{Element, Error, HostBlock, HostRegion, Result, Ticket},
    runtime::Lease,
};

/// Host memory of `len` elements, pinned where the device is a GPU; reads and writes like a slice.
pub struct PinnedBuffer<T> {
    lease: Arc<Lease>,
    len: usize,
    element: PhantomData<T>,
}

impl Device {
    /// A zeroed host buffer of `len` elements that this device copies from and to at full speed. May block for as long
    /// as the driver pins memory: inside a poll use [`start_pinning`](Device::start_pinning).
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn pinned<T: Element>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::new(self, len)
    }

    /// As [`pinned`](Device::pinned), but not zeroed: the buffer holds bytes of an earlier copy. Use it as the target
    /// of a download.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn landing_place<T: Element>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::uninitialised(self, len)
    }

    /// As [`landing_place`](Device::landing_place), if there is memory that was pinned before and is idle.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`] for more elements than there can be.
    pub fn idle_landing_place<T: Element>(&self, len: usize) -> Result<Option<PinnedBuffer<T>>> {
        let idle = self.core().host.take_idle(bytes_of::<T>(len)?);
        Ok(idle.map(|lease| PinnedBuffer { lease, len, element: PhantomData }))
    }

    /// As [`landing_place`](Device::landing_place), without blocking. If a GPU has no idle block of that size, a
    /// helper thread pins a new one.
    pub fn start_pinning<T: Element>(&self, len: usize) -> Pinning<T> {
        Pinning::new(self, len)
    }
}

impl<T: Element> PinnedBuffer<T> {
    /// A zeroed buffer.
    pub(super) fn new(device: &Device, len: usize) -> Result<Self> {
        let mut buffer = Self::uninitialised(device, len)?;
        buffer.fill(T::zeroed());
        Ok(buffer)
    }

    /// A buffer with the bytes of the block's last use.
    pub(super) fn uninitialised(device: &Device, len: usize) -> Result<Self> {
        let core = device.core();
        let lease = core.host.take(&*core.backend, bytes_of::<T>(len)?)?;
        Ok(Self { lease, len, element: PhantomData })
    }

    /// A buffer with a copy of `values`.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn copied_from(device: &Device, values: &[T]) -> Result<Self> {
        let mut buffer = Self::uninitialised(device, values.len())?;
        buffer.copy_from_slice(values);
        Ok(buffer)
    }

    /// Passes the block to a submission.
    pub(super) fn into_lease(self) -> Arc<Lease> {
        self.lease
    }
}

impl<T: Element> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: no submission in flight names the block while a `PinnedBuffer` has it (see the rules).
        let bytes = unsafe { self.lease.block().shared_bytes() };
        // SAFETY: blocks are aligned for every element and hold at least `len` of them, initialised;
        // an `Element` takes any bits.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), self.len) }
    }
}

impl<T: Element> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let start = self.lease.block().as_ptr();
        // SAFETY: as in `deref`; exclusive because this is the only right to the bytes and it is
        // borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), self.len) }
    }
}

impl<T: Element> std::fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedBuffer({} x {})", self.len, std::any::type_name::<T>())
    }
}

/// The size of `len` elements in bytes.
fn bytes_of<T: Element>(len: usize) -> Result<usize> {
    const { assert!(align_of::<T>() <= HostBlock::ALIGN, "elements are aligned to 64 bytes at most") };
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
    bytes.ok_or(Error::OutOfHostMemory { requested: u64::MAX })
}

/// A request for a pinned buffer. If a GPU has no idle block of that size, a helper thread pins a new one.
pub struct Pinning<T> {
    device: Device,
    len: usize,
    /// Present once the helper thread pins memory.
    job: Option<BlockingJob<Result<Arc<Lease>>>>,
    element: PhantomData<T>,
}

impl<T: Element> Pinning<T> {
    pub(super) fn new(device: &Device, len: usize) -> Self {
        Self { device: device.clone(), len, job: None, element: PhantomData }
    }

    /// Ready with the buffer. It holds the bytes of an earlier copy.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`]; [`Error::Host`] if the helper thread cannot be started.
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<PinnedBuffer<T>>> {
        if self.job.is_none() {
            let bytes = bytes_of::<T>(self.len)?;
            let core = self.device.core();
            if let Some(idle) = core.host.take_idle(bytes) {
                return Poll::Ready(Ok(self.buffer(idle)));
            }
            if !core.capabilities.slow_host_blocks {
                return Poll::Ready(self.wait());
            }
            self.job = Some(self.start(bytes)?);
        }
        let Some(job) = &mut self.job else { return Poll::Ready(Err(Error::AlreadyEnded)) };
        let lease = ready!(job.poll(task)).flatten();
        Poll::Ready(lease.map(|lease| self.buffer(lease)))
    }

    /// Pins a buffer on the calling thread, which may block for as long as that takes.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn wait(&mut self) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::uninitialised(&self.device, self.len)
    }

    #[cold]
    fn start(&self, bytes: usize) -> Result<BlockingJob<Result<Arc<Lease>>>> {
        let core = self.device.core().clone();
        self.device.run_blocking(move || core.host.take(&*core.backend, bytes))
    }

    fn buffer(&self, lease: Arc<Lease>) -> PinnedBuffer<T> {
        PinnedBuffer { lease, len: self.len, element: PhantomData }
    }
}

impl<T> std::fmt::Debug for Pinning<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinning({} x {})", self.len, std::any::type_name::<T>())
    }
}

/// A download in flight. Gives the pinned buffer when the bytes have arrived.
pub struct Landing<T> {
    /// A clone of the handle that submitted the download. It counts no submissions.
    stream: Stream,
    ticket: Ticket,
    /// `None` after the buffer was taken.
    buffer: Option<(Arc<Lease>, usize)>,
    element: PhantomData<T>,
}

impl<T: Element> Landing<T> {
    /// `lease` is the block that the submission `ticket` of `stream` fills with `len` elements.
    pub(super) fn new(stream: &Stream, ticket: Ticket, lease: Arc<Lease>, len: usize) -> Self {
        Self { stream: stream.clone(), ticket, buffer: Some((lease, len)), element: PhantomData }
    }

    /// The submission that fills the buffer.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.buffer.as_ref().map_or(0, |(_, len)| *len)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the buffer if the download is known to be complete, else `None`. Does not ask the device.
    ///
    /// # Errors
    /// The failure of the download.
    pub fn try_take(&mut self) -> Option<Result<PinnedBuffer<T>>> {
        let outcome = self.stream.progress().outcome(self.ticket.number)?;
        Some(outcome.and_then(|()| self.take()))
    }

    /// Blocks the calling thread until the bytes have landed.
    ///
    /// # Errors
    /// The failure of the download, or the error that lost the device.
    pub fn wait(mut self) -> Result<PinnedBuffer<T>> {
        if let Some(landed) = self.try_take() {
            return landed;
        }
        self.stream.synchronize_to(self.ticket.number)?;
        self.try_take().unwrap_or(Err(Error::AlreadyEnded))
    }

    /// Called when the stream is known to have passed the copy.
    fn take(&mut self) -> Result<PinnedBuffer<T>> {
        let (lease, len) = self.buffer.take().ok_or(Error::AlreadyEnded)?;
        Ok(PinnedBuffer { lease, len, element: PhantomData })
    }
}

/// The start of a lease's block.
pub(super) fn start_of(lease: &Lease) -> HostRegion {
    HostRegion { block: lease.block().id(), offset: 0 }
}
