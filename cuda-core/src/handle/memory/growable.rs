//! Buffers that grow in place.

use std::{marker::PhantomData, ops::RangeBounds, sync::Arc};

use crate::handle::memory::buffer::{Slice, SliceMut};
use crate::{
    handle::{device::Device, memory::buffer::View, stream::Allocation},
    protocol::{
        AllocId, Control, Element, Error, Feature, Limit, Quantity, Reply, Request, Result, Ticket,
        assert_has_bytes,
    },
    runtime::unexpected,
};

/// Device memory that grows without moving its elements.
///
/// The buffer reserves addresses for its maximum length once, and takes memory of the device as it grows. So a kernel
/// argument, a slice in a recorded graph or an address stays valid, and no copy is needed. Operations use it through
/// its slices. The memory is freed after its last use.
///
/// ```
/// # use cuda_core::{Device, GrowableBuffer};
/// # fn grows(device: &Device) -> cuda_core::Result<()> {
/// let mut list = GrowableBuffer::<u64>::new(device, 1 << 30)?; // takes no memory
/// list.grow(1000)?;
/// let stream = device.new_stream()?;
/// list.as_slice_mut().fill(&stream, 0)?;
/// list.grow(2000)?; // the first 1000 elements keep their values
/// # Ok(())
/// # }
/// ```
pub struct GrowableBuffer<T> {
    allocation: Arc<Allocation>,
    len: usize,
    max_len: usize,
    element: PhantomData<T>,
}

impl<T: Element> GrowableBuffer<T> {
    /// Reserves addresses for at most `max_len` elements. The buffer is empty, and takes no memory of the device.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device has no such buffers; [`Error::OutOfRange`] if the elements have more than
    /// 2^64 bytes; [`Error::OutOfHostMemory`] if a CPU device has too little memory or too few addresses for them; or
    /// an error of the device.
    pub fn new(device: &Device, max_len: usize) -> Result<Self> {
        let core = device.core();
        if !core.capabilities.growable {
            return Err(Error::unsupported(Feature::GrowableBuffer, &device.info().address));
        }
        let most = u64::MAX.checked_div(size_of::<T>() as u64).unwrap_or(u64::MAX);
        let bytes = bytes_of::<T>(max_len).ok_or_else(|| beyond(max_len, most))?;
        let (id, bytes) = (AllocId(core.next_id()), bytes.max(1));
        // SAFETY: the control frees, retires, drops and unloads nothing.
        unsafe { core.backend.control(Control::Reserve { id, bytes }) }?;
        let reserved = Ticket { stream: core.housekeeping.id, number: 0 };
        let allocation = Allocation::reserved(device.clone(), id, bytes, reserved);
        Ok(Self { allocation, len: 0, max_len, element: PhantomData })
    }

    /// Makes the buffer `len` elements long. Existing elements keep their values and their addresses, and the contents
    /// of new elements are unspecified. Does nothing if the buffer has `len` elements or more. Blocks until the device
    /// has the memory, so in async code call it outside of polls, for example with `spawn_blocking`.
    ///
    /// If there is too little memory, this reclaims dropped buffers, waits for the work in flight, and tries once more.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] beyond the maximum length, [`Error::OutOfMemory`], or an error of the device. The buffer
    /// then has its length from before.
    pub fn grow(&mut self, len: usize) -> Result<()> {
        if len <= self.len {
            return Ok(());
        }
        let (true, Some(bytes)) = (len <= self.max_len, bytes_of::<T>(len)) else {
            return Err(beyond(len, self.max_len as u64));
        };
        let core = self.device().core();
        core.reclaim_memory();
        match self.commit(bytes) {
            Err(Error::OutOfMemory { requested, total, .. }) if requested <= total => {
                core.recover_memory();
                self.device().synchronize()?;
                self.commit(bytes)?;
            }
            other => other?,
        }
        self.len = len;
        Ok(())
    }

    /// Charges and takes memory, so that the buffer can use `bytes` bytes.
    fn commit(&self, bytes: u64) -> Result<()> {
        let core = self.device().core();
        // Before the request: the device would take the memory.
        self.device().core().streams.check_may_wait()?;
        let more = bytes - self.view().bytes;
        core.charge.charge_elsewhere(more)?;
        let request = Request::Commit { id: self.allocation.id(), bytes };
        let committed = core.request(request, |reply| match reply {
            Reply::Committed => Ok(()),
            other => Err(unexpected(&other)),
        });
        committed.wait().inspect_err(|_| core.charge.refund_elsewhere(more))?;
        self.allocation.set_committed(bytes);
        Ok(())
    }
}

/// Returns the error for `len` elements, where a buffer that grows can have `most`.
#[cold]
fn beyond(len: usize, most: u64) -> Error {
    let limit = Limit::AtMost(most);
    Error::out_of_range("a buffer that grows", Quantity::Elements, len as u64, limit)
}

impl<T> GrowableBuffer<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the largest number of elements that the buffer can have.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// Returns the device of this buffer.
    pub fn device(&self) -> &Device {
        self.allocation.device()
    }

    fn view(&self) -> View<'_> {
        let bytes = self.len as u64 * size_of::<T>() as u64;
        View { allocation: &self.allocation, start: 0, bytes }
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

    /// Returns a slice of the elements in `range`, for writing.
    ///
    /// # Errors
    /// The errors of [`slice`](Self::slice).
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        self.view().part::<T>(range).map(SliceMut::new)
    }
}

/// The bytes of `len` elements, if they are a number of 64 bits.
fn bytes_of<T>(len: usize) -> Option<u64> {
    const { assert_has_bytes::<T>() };
    (len as u64).checked_mul(size_of::<T>() as u64)
}

impl<T> std::fmt::Debug for GrowableBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (len, max, ty) = (self.len, self.max_len, std::any::type_name::<T>());
        write!(f, "GrowableBuffer({len} of {max} x {ty} on {})", self.device().info().address)
    }
}
