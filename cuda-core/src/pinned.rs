//! Typed host memory that a device copies from and to at full speed.
//!
//! # Rules
//! A [`PinnedBuffer`] is the right to its block's bytes: while one exists, no command in flight names the
//! block. Uploading consumes it; a download consumes it too and gives back a [`Landing`], which turns
//! into a `PinnedBuffer` again only when the stream is known to have passed the copy. The block itself
//! is kept alive by its stream, so dropping or forgetting either is fine.

use std::{
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use crate::{
    Device, Element, Error, HostBlock, HostRegion, Result, Stream, hazard::Ticket, host_pool::Lease,
};

/// Host memory of `len` elements, pinned where the device is a GPU; reads and writes like a slice.
pub struct PinnedBuffer<T> {
    lease: Arc<Lease>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> PinnedBuffer<T> {
    /// Zeroed.
    pub(crate) fn new(device: &Device, len: usize) -> Result<Self> {
        let mut buffer = Self::uninitialised(device, len)?;
        buffer.fill(T::zeroed());
        Ok(buffer)
    }

    /// With whatever was there last: initialised bytes, but not this user's.
    pub(crate) fn uninitialised(device: &Device, len: usize) -> Result<Self> {
        const {
            assert!(align_of::<T>() <= HostBlock::ALIGN, "elements are aligned to 64 bytes at most")
        };
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or(Error::OutOfHostMemory { requested: u64::MAX })?;
        let lease = device.inner().host.take(device.backend(), bytes)?;
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

    /// Gives up the right to the bytes, to a command.
    pub(crate) fn into_lease(self) -> Arc<Lease> {
        self.lease
    }
}

impl<T: Element> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: no command in flight names the block while a `PinnedBuffer` has it (see the rules).
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

/// A download on its way.
pub struct Landing<T> {
    stream: Stream,
    ticket: Ticket,
    /// Taken when it has landed.
    buffer: Option<(Arc<Lease>, usize)>,
    element: PhantomData<T>,
}

impl<T: Element> Landing<T> {
    /// `lease` is the block that the submission `ticket` of `stream` fills with `len` elements.
    pub(crate) fn new(stream: Stream, ticket: Ticket, lease: Arc<Lease>, len: usize) -> Self {
        Self { stream, ticket, buffer: Some((lease, len)), element: PhantomData }
    }

    /// The submission that fills the buffer.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The buffer, if it is known that it has landed. Asks nobody.
    pub fn try_take(&mut self) -> Option<Result<PinnedBuffer<T>>> {
        let outcome = self.stream.outcome(self.ticket.number)?;
        Some(outcome.and_then(|()| self.take()))
    }

    /// Blocks the calling thread until the bytes have landed.
    ///
    /// # Errors
    /// What the stream met.
    pub fn wait(mut self) -> Result<PinnedBuffer<T>> {
        if let Some(landed) = self.try_take() {
            return landed;
        }
        self.stream.synchronize()?;
        self.try_take().unwrap_or(Err(Error::AlreadyEnded))
    }

    /// The stream is known to have passed the copy.
    fn take(&mut self) -> Result<PinnedBuffer<T>> {
        let (lease, len) = self.buffer.take().ok_or(Error::AlreadyEnded)?;
        Ok(PinnedBuffer { lease, len, element: PhantomData })
    }
}

pub(crate) fn whole(lease: &Lease) -> HostRegion {
    HostRegion { block: lease.block().id(), offset: 0 }
}
