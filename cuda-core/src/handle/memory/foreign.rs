//! Buffers and foreign code: calls that use buffers, and buffers in memory of other libraries.

use std::{any::Any, sync::Arc};

use smallvec::SmallVec;

use super::buffer::DeviceBuffer;
use crate::handle::memory::buffer::Slice;
use crate::{
    handle::stream::{Allocation, Operand, Stream, submit_foreign_on},
    protocol::{
        Access, Element, Error, ForeignOwner, Limit, MemoryConflict, Misuse, Quantity, RawStream,
        Result, Ticket,
    },
};

/// A call of foreign code that enqueues commands on a stream: a library such as cuBLAS, or a caller's own driver calls.
///
/// The call names the memory that its commands use. The library orders it with other uses of that memory, as it orders
/// a kernel launch.
#[derive(Clone, Default)]
pub struct ForeignCall<'a> {
    operands: SmallVec<[Operand<'a>; 4]>,
    kept: Option<Arc<dyn Any + Send + Sync>>,
}

impl<'a> ForeignCall<'a> {
    /// Creates a call that uses no memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds memory that the commands use. Takes a shared borrow for every access. With [`Access::Write`], the caller of
    /// [`submit`](Self::submit) must ensure that no other code uses the memory.
    #[must_use]
    pub fn uses<T>(mut self, slice: Slice<'a, T>, access: Access) -> Self {
        self.operands.push(slice.view().operand(access));
        self
    }

    /// Keeps a resource, such as a plan of a library, until the commands have run. A thread of the device then drops
    /// it. A second call replaces the first resource.
    #[must_use]
    pub fn keeps(mut self, resource: Arc<dyn Any + Send + Sync>) -> Self {
        self.kept = Some(resource);
        self
    }

    /// Calls `submit`, which enqueues commands on the raw stream. It gets the device addresses of the memory, in the
    /// order in which it was added. The GPU's context is current on the calling thread. All commands count as one
    /// submission, also those before an error or a panic of `submit`.
    ///
    /// In a recording, `submit` runs once, with a raw stream that is being captured, and its commands run in every
    /// replay. The recording has to be prepared before a replay.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device is not a GPU of this process; [`Error::Misuse`] in a plan;
    /// [`Error::WrongDevice`] for memory of another device; or the error of `submit`. In a recording, [`Error::Misuse`]
    /// if a command cannot be captured.
    ///
    /// # Safety
    /// - The commands use no other memory of this library, and stay inside the slices. They write only slices with
    ///   [`Access::Write`], which the caller may write.
    /// - Host memory and foreign memory that the commands use stays valid until they have run.
    /// - `submit` passes this stream to no function of this library, and launches no graph.
    /// - A capture of the stream that `submit` begins has ended when it returns.
    /// - In a recording, `submit` begins and ends no capture, and all of this holds for every replay.
    pub unsafe fn submit(
        self,
        stream: &Stream,
        submit: impl FnOnce(RawStream, &[u64]) -> Result<()>,
    ) -> Result<Ticket> {
        let mut submit = Some(submit);
        let mut once = |raw, addresses: &[u64]| {
            submit.take().map_or(Err(Error::AlreadyEnded), |submit| submit(raw, addresses))
        };
        // SAFETY: the commands use no other memory of this library, make the accesses of the operands only, and the
        // caller may make them. Other memory stays valid until the commands have run.
        unsafe { submit_foreign_on(stream, &self.operands, self.kept, &mut once) }
    }
}

impl std::fmt::Debug for ForeignCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForeignCall").field("operands", &self.operands).finish_non_exhaustive()
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// Creates a buffer over memory of foreign code: `len` elements from the device address `address` on. Work on the
    /// buffer comes after everything that is enqueued on `stream` so far.
    ///
    /// `owner` keeps the memory alive. When the last handle of the buffer is dropped and the last work on it is
    /// complete, a thread of the device drops `owner`. The memory does not count for
    /// [`Device::memory`](crate::Device::memory).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device is not a GPU of this process. [`Error::OutOfRange`] if the memory is empty,
    /// is misaligned for the elements, or does not fit into the address space. [`Error::Misuse`] on a stream of a
    /// recording.
    ///
    /// # Safety
    /// - The device may access the memory until `owner` is dropped, and its bytes are valid elements.
    /// - Until then, foreign code that uses the memory is ordered by the caller, and does not write it while this
    ///   library uses it. Work that foreign code has enqueued on other streams than `stream` is complete.
    pub unsafe fn from_raw_parts(
        stream: &Stream,
        address: u64,
        len: usize,
        owner: ForeignOwner,
    ) -> Result<Self> {
        let what = "foreign memory";
        Limit::MultipleOf(align_of::<T>() as u64).check(what, Quantity::Address, address)?;
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        Limit::AtLeast(1).check(what, Quantity::Bytes, bytes)?;
        Limit::AtMost(u64::MAX - address).check(what, Quantity::Bytes, bytes)?;
        // SAFETY: `len` elements exist at `address` until `owner` is dropped.
        let allocation = unsafe { Allocation::of_foreign(stream, address, bytes, owner) }?;
        Ok(Self::of_allocation(allocation, len))
    }

    /// Gives the memory to foreign code, and returns the device address of the first element. Work that is enqueued on
    /// `stream` later comes after all uses of the buffer so far. Foreign code frees the memory in the order of a stream
    /// (`cuMemFreeAsync`). For memory that came from foreign code, this also returns its owner, which frees it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device is not a GPU of this process; [`Error::StillShared`] if the allocation has
    /// other owners; [`Error::Misuse`] if it is a variable of a module, a part of a split buffer, or has no elements,
    /// or if a recording uses it. The buffer is then dropped.
    pub fn into_raw_parts(self, stream: &Stream) -> Result<(u64, Option<ForeignOwner>)> {
        if self.view().bytes != self.allocation().bytes() {
            return Err(Error::memory("giving memory to foreign code", MemoryConflict::Part));
        }
        self.check_exchange("giving memory to foreign code")?;
        self.into_allocation().give_to_foreign(stream)
    }

    /// Lends the memory to foreign code, and returns the device address of the first element. Commands that are
    /// enqueued on `stream` later come after all uses of the buffer so far. The buffer still owns the memory.
    ///
    /// Call this again with the same stream before later work on the buffer, and before the buffer is dropped. That
    /// work and the free then come after the commands that foreign code has enqueued on `stream` in between.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the device is not a GPU of this process.
    /// - [`Error::WrongDevice`] if `stream` belongs to another device.
    /// - [`Error::Misuse`] if the buffer has no elements or is a variable of a module, or if it or `stream` is part of
    ///   a recording.
    /// - An error of the device.
    pub fn lend_raw(&self, stream: &Stream) -> Result<u64> {
        self.check_exchange("lending memory to foreign code")?;
        if stream.is_recording() {
            return Err(Misuse::ExchangeInRecording.into());
        }
        let mut address = 0;
        let call = ForeignCall::new().uses(self.as_slice(), Access::Write);
        let submit = |_: RawStream, addresses: &[u64]| {
            address = addresses.first().copied().unwrap_or_default();
            Ok(())
        };
        // SAFETY: enqueues nothing. The stream waits for the earlier uses.
        unsafe { call.submit(stream, submit) }.map(|_| address)
    }

    /// Checks that the buffer has elements, and that its uses are ordered without turns.
    fn check_exchange(&self, operation: &'static str) -> Result<()> {
        let allocation = self.allocation();
        let conflict = if self.is_empty() {
            MemoryConflict::Empty
        } else if allocation.is_variable() {
            MemoryConflict::Variable
        } else if allocation.takes_turns() {
            MemoryConflict::Recorded
        } else {
            return Ok(());
        };
        Err(Error::memory(operation, conflict))
    }

    /// Returns whether the memory came from foreign code.
    pub fn is_foreign(&self) -> bool {
        self.allocation().is_foreign()
    }
}
