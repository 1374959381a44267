//! `HostValues`: host values that are uploaded again and again, and that may change between the uploads.
//!
//! # Rules
//! The bytes of a block in a slot never change. New values come in another block, and the earlier block is retained
//! until no submission in flight names it. So new values never change an upload in flight.

use std::{marker::PhantomData, sync::Arc};

use super::pinned::{PinnedBuffer, start_of};
use crate::{
    handle::{
        device::Device,
        memory::buffer::SliceMut,
        stream::{Attached, Keep, Stream, UploadSlot, UploadSource},
    },
    order::timeline::Until,
    protocol::{Access, Element, Limit, Quantity, Result, Ticket, Work},
    runtime::PooledBlock,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Host values of a fixed number of elements. Clones are the same slot. Each upload copies the values that were set
/// last. An upload in a recording copies the values that are set when the replay is submitted.
pub struct HostValues<T> {
    shared: Arc<Shared>,
    device: Device,
    len: usize,
    element: PhantomData<T>,
}

/// The block of a slot.
struct Shared {
    /// The version of `block`, stored with its lock held.
    version: AtomicU64,
    block: Mutex<Arc<PooledBlock>>,
}

impl<T: Element> HostValues<T> {
    /// Creates a slot with the values of a pinned buffer.
    pub fn new(values: PinnedBuffer<T>, device: &Device) -> Self {
        let (len, block) = (values.len(), Mutex::new(values.into_pooled()));
        let shared = Arc::new(Shared { version: AtomicU64::new(1), block });
        Self { shared, device: device.clone(), len, element: PhantomData }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the slot has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device of the slot.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Sets the values, for later uploads. Uploads in flight copy the earlier values.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the number of elements differs.
    pub fn set(&self, values: PinnedBuffer<T>) -> Result<()> {
        let limit = Limit::Exactly(self.len as u64);
        limit.check("the values for a host slot", Quantity::Elements, values.len() as u64)?;
        let before = {
            let mut block = self.shared.block.lock();
            let before = std::mem::replace(&mut *block, values.into_pooled());
            self.shared.version.fetch_add(1, Ordering::Release);
            before
        };
        drop(before);
        Ok(())
    }

    /// Uploads the values to `target`, which has the same length.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the lengths differ, or an error of the device.
    pub fn upload(&self, stream: &Stream, target: &mut SliceMut<'_, T>) -> Result<Ticket> {
        let view = target.view();
        let limit = Limit::Exactly(target.len() as u64);
        limit.check("an upload from a host slot", Quantity::Elements, self.len as u64)?;
        if view.bytes == 0 {
            return Ok(Ticket { stream: stream.id(), number: 0 });
        }
        self.device.check_same("a host slot", stream.device())?;
        let block = self.shared.block.lock().clone();
        let work = Work::Upload { from: start_of(&block), to: view.region(), bytes: view.bytes };
        let operand = view.operand(Access::Write);
        if stream.is_recording() {
            return stream.ordered().record(|recorder| {
                let (_, source) = self.shared.current();
                let source = UploadSource { slot: Some(self.shared.clone()), ..source };
                recorder.append(stream.device(), stream.id(), &work, &[operand], Some(source))
            });
        }
        let host = block.block().clone();
        let keep = Keep { until: Until::Accepted, resource: block };
        // SAFETY: the copy writes the target. A block that is shared with a submission is never written.
        unsafe {
            stream.submit(
                &work,
                &[operand],
                Attached { keep: Some(keep), host: Some(&host), ..Attached::default() },
            )
        }
    }
}

impl UploadSlot for Shared {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn current(&self) -> (u64, UploadSource) {
        let block = self.block.lock();
        let host = block.block().clone();
        (self.version.load(Ordering::Acquire), UploadSource::new(block.clone(), host))
    }
}

impl<T> Clone for HostValues<T> {
    fn clone(&self) -> Self {
        let (shared, device) = (self.shared.clone(), self.device.clone());
        Self { shared, device, len: self.len, element: PhantomData }
    }
}

impl<T> std::fmt::Debug for HostValues<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostValues({} x {})", self.len, std::any::type_name::<T>())
    }
}
