//! Typed device memory.

use std::{marker::PhantomData, ops::Range, sync::Arc};

use super::{
    Allocation, Device, Landing, PinnedBuffer, Stream, allocation::Operand, pinned::start_of,
    stream::Keep,
};
use crate::{
    order::retention::Until,
    protocol::{Access, Element, Error, Pattern, Result, Ticket, Work},
};

/// Owned device memory for `len` elements; freed in stream order after its last use.
///
/// Dropping one never blocks and calls no driver. Uses on several streams are ordered by the library.
/// A buffer is shared as `Arc<DeviceBuffer<T>>`.
pub struct DeviceBuffer<T> {
    allocation: Arc<Allocation>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> DeviceBuffer<T> {
    /// Allocates; the contents are unspecified (some earlier bytes of this device).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or an error of the device.
    pub fn uninitialised(stream: &Stream, len: usize) -> Result<Self> {
        let total = stream.device().info().memory;
        let out_of_memory = Error::OutOfMemory { requested: u64::MAX, free: total, total };
        let bytes = (len as u64).checked_mul(size_of::<T>() as u64).ok_or(out_of_memory)?;
        Ok(Self { allocation: Allocation::new(stream, bytes)?, len, element: PhantomData })
    }

    /// Allocates and zeroes.
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninitialised`].
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self> {
        let mut buffer = Self::uninitialised(stream, len)?;
        let bytes = buffer.allocation.bytes();
        buffer.fill_pattern(stream, Pattern::Byte(0), bytes)?;
        Ok(buffer)
    }

    /// Allocates and uploads all of `host`.
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninitialised`].
    pub fn uploaded(stream: &Stream, host: PinnedBuffer<T>) -> Result<Self> {
        let mut buffer = Self::uninitialised(stream, host.len())?;
        buffer.upload(stream, 0, host)?;
        Ok(buffer)
    }

    /// Copies all of `host` to the elements from `at` on. The host buffer is used up.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it does not fit, or an error of the device.
    pub fn upload(&mut self, stream: &Stream, at: usize, host: PinnedBuffer<T>) -> Result<Ticket> {
        let range = self.checked("an upload", at..at.saturating_add(host.len()))?;
        if range.is_empty() {
            return Ok(nothing_on(stream));
        }
        let lease = host.into_lease();
        let (from, to) = (start_of(&lease), self.allocation.region(range.start));
        let work = Work::Upload { from, to, bytes: range.end - range.start };
        let operand = Operand::new(&self.allocation, range, Access::Write);
        let (block, until) = (lease.block().clone(), Until::Accepted);
        stream.submit(work, &[operand], Some(Keep { until, resource: lease }), Some(&block))
    }

    /// Copies the elements of `range` to `host`, whose length is the range's.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it does not fit, or an error of the device.
    pub fn download(
        &self,
        stream: &Stream,
        range: Range<usize>,
        host: PinnedBuffer<T>,
    ) -> Result<Landing<T>> {
        let elements = range.len();
        let range = self.checked("a download", range)?;
        if elements != host.len() {
            let detail = format!("{elements} elements into a host buffer of {}", host.len());
            return Err(Error::OutOfRange { what: "a download".into(), detail });
        }
        let lease = host.into_lease();
        let ticket = if range.is_empty() {
            nothing_on(stream)
        } else {
            let (from, to) = (self.allocation.region(range.start), start_of(&lease));
            let work = Work::Download { from, to, bytes: range.end - range.start };
            let operand = Operand::new(&self.allocation, range, Access::Read);
            let keep = Keep { until: Until::Complete, resource: lease.clone() };
            stream.submit(work, &[operand], Some(keep), Some(lease.block()))?
        };
        Ok(Landing::new(stream, ticket, lease, elements))
    }

    /// Copies `from`, which has as many elements, into this buffer.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the lengths differ, or an error of the device.
    pub fn copy_from(&mut self, stream: &Stream, from: &DeviceBuffer<T>) -> Result<Ticket> {
        if from.len != self.len {
            let detail = format!("{} elements into a buffer of {}", from.len, self.len);
            return Err(Error::OutOfRange { what: "a device copy".into(), detail });
        }
        if self.is_empty() {
            return Ok(nothing_on(stream));
        }
        let (source, to) = (from.allocation.region(0), self.allocation.region(0));
        let work = Work::Copy { from: source, to, bytes: self.allocation.bytes() };
        stream.submit(work, &[from.operand(Access::Read), self.operand(Access::Write)], None, None)
    }

    fn fill_pattern(&mut self, stream: &Stream, pattern: Pattern, count: u64) -> Result<Ticket> {
        if count == 0 {
            return Ok(nothing_on(stream));
        }
        let work = Work::Fill { to: self.allocation.region(0), pattern, count };
        stream.submit(work, &[self.operand(Access::Write)], None, None)
    }

    /// A range of elements as bytes, if it lies inside.
    fn checked(&self, what: &'static str, range: Range<usize>) -> Result<Range<u64>> {
        if range.start > range.end || range.end > self.len {
            let detail = format!("elements {range:?} of a buffer of {}", self.len);
            return Err(Error::OutOfRange { what: what.into(), detail });
        }
        let size = size_of::<T>() as u64;
        Ok(range.start as u64 * size..range.end as u64 * size)
    }
}

/// The ticket of a call that had nothing to submit: complete from the start.
fn nothing_on(stream: &Stream) -> Ticket {
    Ticket { stream: stream.id(), number: 0 }
}

impl<T> DeviceBuffer<T> {
    /// The use of all of it.
    #[inline]
    pub(super) fn operand(&self, access: Access) -> Operand<'_> {
        Operand::new(&self.allocation, 0..self.allocation.bytes(), access)
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device it is on.
    pub fn device(&self) -> &Device {
        self.allocation.device()
    }

    /// The memory itself.
    #[inline]
    pub fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }
}

impl<T> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (len, ty) = (self.len, std::any::type_name::<T>());
        write!(f, "DeviceBuffer({len} x {ty} on {})", self.device().info().address)
    }
}
