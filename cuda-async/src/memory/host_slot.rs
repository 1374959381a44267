//! `HostSlot`: host values that a graph uploads in each launch, and that may change between the launches.

use std::task::Context;

use cuda_core::{Device, DeviceBuffer, Element, HostValues, PinnedBuffer, Result};

use crate::{
    context::{CreditWait, ExecutionContext},
    memory::{allocate::uninitialized, source::BufferTarget},
    op::{Op, Submit, Submitted},
    ops::DeviceOp,
};

/// Host values of a fixed number of elements, which a program or a graph uploads repeatedly. Clones are the same slot.
///
/// An upload copies the values that are set when it is submitted. Inside a graph, each launch uploads the values that
/// are set when the launch is submitted. Threads that set values and launch the same graph need a lock around both. The
/// values lie in pinned memory, so an upload copies nothing on the host.
///
/// ```
/// use cuda_async::{memory::HostSlot, prelude::*};
/// let slot = HostSlot::new(&cuda_async::default_device()?, &[1u32, 2])?;
/// let graph = slot.upload().graph()?;
/// assert_eq!(graph.launch().then(to_host).sync()?, [1, 2]);
/// slot.set(&[3, 4])?;
/// assert_eq!(graph.launch().then(to_host).sync()?, [3, 4]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub struct HostSlot<T>(HostValues<T>);

impl<T: Element> HostSlot<T> {
    /// Creates a slot with values. May block for as long as the driver pins memory.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`](crate::Error::OutOfHostMemory).
    pub fn new(device: &Device, values: &[T]) -> Result<Self> {
        let pinned = PinnedBuffer::copied_from(device, values)?;
        Ok(Self(HostValues::new(pinned, device)))
    }

    /// Sets the values, for later uploads and launches. Uploads and launches in flight use the earlier values. May
    /// block for as long as the driver pins memory, if none is idle: in async code use
    /// [`set_pinned`](Self::set_pinned).
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the number of elements differs.
    /// [`Error::OutOfHostMemory`](crate::Error::OutOfHostMemory).
    pub fn set(&self, values: &[T]) -> Result<()> {
        self.set_pinned(PinnedBuffer::copied_from(self.0.device(), values)?)
    }

    /// Sets the values to those of a pinned buffer, as [`set`](Self::set), without a copy. Never blocks.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the number of elements differs.
    pub fn set_pinned(&self, values: PinnedBuffer<T>) -> Result<()> {
        self.0.set(values)
    }

    /// Uploads the values into a new device buffer.
    ///
    /// # Errors
    /// The errors of [`h2d`](crate::h2d). [`Error::WrongDevice`](crate::Error::WrongDevice) on another device.
    pub fn upload(&self) -> impl DeviceOp<Output = DeviceBuffer<T>> + use<T> {
        let slot = self.clone();
        uninitialized(slot.len()).then(move |buffer| slot.upload_into(buffer))
    }

    /// Uploads the values into existing device memory of the same length, and gives the memory back.
    ///
    /// # Errors
    /// The errors of [`upload_into`](crate::memory::upload_into). [`Error::WrongDevice`](crate::Error::WrongDevice) on
    /// another device.
    pub fn upload_into<B: BufferTarget<Element = T>>(&self, target: B) -> Op<UploadSlot<B>> {
        Op::new(UploadSlot { slot: self.clone(), target, credit: CreditWait::new() })
    }
}

impl<T: Element> HostSlot<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the slot has no elements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Element> Clone for HostSlot<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> std::fmt::Debug for HostSlot<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The steps of [`HostSlot::upload_into`].
pub struct UploadSlot<B: BufferTarget> {
    slot: HostSlot<B::Element>,
    target: B,
    credit: CreditWait,
}

impl<B: BufferTarget> Submit for UploadSlot<B> {
    type Output = B;

    fn submit(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        if cx.poll_credit(&mut self.credit, task)?.is_pending() {
            return Ok(Submitted::Pending(self));
        }
        let Self { slot: HostSlot(values), mut target, .. } = self;
        cx.enqueue(|stream| values.upload(stream, &mut target.as_slice_mut()))?;
        Ok(Submitted::Ready(target))
    }
}
