//! Foreign code on streams: its submissions, and streams and memory that belong to it.

use std::{any::Any, cell::Cell, sync::Arc};

use super::{
    allocation::{Allocation, Operand},
    stream::{OnDrop, Stream},
    submit::{Claims, Keep, Ordered, planned_memory, publish},
};
use crate::{
    handle::device::Device,
    order::{
        Retain,
        timeline::{Timeline, Until},
    },
    protocol::{
        Access, AllocId, Error, Feature, Foreign, ForeignOwner, Misuse, RawStream, Result,
        StreamId, Ticket, Use,
    },
    sync::HelperThread,
};

impl Stream {
    /// Runs foreign code that enqueues on the raw stream, and counts its commands as one submission. It names no
    /// memory. For commands that use buffers see [`ForeignCall`](crate::ForeignCall).
    ///
    /// In a recording, `submit` runs once, with a raw stream that is being captured. Its commands run in every replay,
    /// after the earlier work of the branch and before the later work. A recording with foreign work has to be prepared
    /// before a replay.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device is not a GPU of this process, or the error of `submit`. In a recording,
    /// [`Error::Misuse`] if a command cannot be captured.
    ///
    /// # Safety
    /// - Device memory of this library that the enqueued commands access is used by no unordered work on another
    ///   stream, unless both only read.
    /// - Host memory that the commands access stays valid until they have run.
    /// - `submit` passes this stream to no function of this library, and launches no graph.
    /// - A capture of the stream that `submit` begins has ended when it returns.
    /// - In a recording, `submit` begins and ends no capture, and all of this holds for every replay.
    pub unsafe fn submit_foreign(
        &self,
        submit: &mut dyn FnMut(RawStream) -> Result<()>,
    ) -> Result<Ticket> {
        // SAFETY: without operands, the rules of `submit_foreign_on` are those of this function.
        unsafe { submit_foreign_on(self, &[], None, &mut |raw, _| submit(raw)) }
    }
}

/// Submits foreign code, as [`Stream::submit_foreign`], whose commands use these operands. `submit` gets their
/// addresses, in the same order. `kept` is dropped on the helper thread when the commands have run.
///
/// # Safety
/// - The rules of [`Stream::submit_foreign`], for memory that is not an operand.
/// - The caller may make the accesses of `operands`, and the commands make no others to that memory.
/// - `kept` keeps what else the commands use.
pub(crate) unsafe fn submit_foreign_on(
    stream: &Stream,
    operands: &[Operand<'_>],
    kept: Option<Arc<dyn Any + Send + Sync>>,
    submit: &mut dyn FnMut(RawStream, &[u64]) -> Result<()>,
) -> Result<Ticket> {
    let device = stream.device();
    let foreign = of(device)?;
    device.core().reclaim_memory();
    for operand in operands {
        device.check_same("a buffer", operand.allocation.device())?;
        if operand.allocation.is_planned() {
            return Err(planned_memory());
        }
    }
    let addresses = operands.iter().map(|operand| {
        let region = operand.allocation.region(operand.range.start);
        foreign.address(region, operand.range.end - operand.range.start)
    });
    let addresses = addresses.collect::<Result<Vec<_>>>()?;
    let submit = &mut |raw| submit(raw, &addresses);
    let mut ordered = stream.ordered();
    if let Some(recorder) = stream.recorder() {
        if recorder.is_plan() {
            return Err(Misuse::ForeignWorkInPlan.into());
        }
        // SAFETY: `submit` begins and ends no capture and passes the stream to no function of this library. What its
        // commands use stays valid for every replay: the recording keeps the operands and `kept`.
        let captured = unsafe { foreign.capture(submit) }?;
        let uses = operands.iter().map(|operand| Use {
            base: operand.allocation.id(),
            range: operand.range.clone(),
            access: operand.access,
        });
        let work = captured.with_uses(uses);
        return ordered
            .record(|recorder| recorder.append_foreign(stream.id(), work, operands, kept));
    }
    ordered.turns.take(operands);
    // SAFETY: the operands are checked, `ordered` holds their turns, and the caller may make their accesses.
    unsafe { ordered.submit_foreign(foreign, operands, kept, submit) }
}

impl Ordered<'_> {
    /// Submits foreign work, with checked operands and with their turns. Once `submit` was called, it counts as a
    /// submission, also if it fails or panics: it may have enqueued commands before.
    ///
    /// # Safety
    /// The rules of [`submit_foreign_on`].
    unsafe fn submit_foreign(
        &mut self,
        foreign: &dyn Foreign,
        operands: &[Operand<'_>],
        kept: Option<Arc<dyn Any + Send + Sync>>,
        submit: &mut dyn FnMut(RawStream) -> Result<()>,
    ) -> Result<Ticket> {
        let stream = self.stream();
        let keep = kept.map(|kept| keep_foreign(stream, kept));
        let mut failed = None;
        let ticket = self.send(Claims::of_foreign, operands, &[], keep, |ticket, after| {
            let begun = Begun { stream, ticket, has_begun: Cell::new(false) };
            let submit = &mut |raw| {
                begun.has_begun.set(true);
                submit(raw)
            };
            // SAFETY: `after` and the stream order the uses of the operands. Other memory that the commands use is
            // ordered and kept by the caller, and `submit` passes the stream to no function of this library.
            let submitted = unsafe { foreign.submit(ticket, after, submit) };
            if begun.has_begun.take() {
                failed = submitted.err();
                return Ok(());
            }
            submitted
        })?;
        failed.map_or(Ok(ticket), Err)
    }
}

/// A resource of foreign code, which a submission needs until it is complete.
fn keep_foreign(stream: &Stream, resource: Arc<dyn Any + Send + Sync>) -> Keep {
    let helper = stream.device().core().helper.clone();
    let kept = ForeignResource { resource: Some(resource), helper };
    Keep { until: Until::Complete, resource: Arc::new(kept) }
}

/// A submission of foreign code. If that has begun and panics, it is published, because it may have enqueued commands.
/// Dropped with the order lock held.
struct Begun<'a> {
    stream: &'a Stream,
    ticket: Ticket,
    has_begun: Cell<bool>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if self.has_begun.get() {
            publish(self.stream, self.ticket);
        }
    }
}

/// A resource of foreign code. Its drop may block, so the helper thread runs it.
struct ForeignResource {
    resource: Option<Arc<dyn Any + Send + Sync>>,
    helper: HelperThread,
}

impl Retain for ForeignResource {}

impl Drop for ForeignResource {
    fn drop(&mut self) {
        let resource = self.resource.take();
        // Without the thread, the resource is dropped here.
        _ = self.helper.run(move || drop(resource));
    }
}

impl Device {
    /// Adds a stream of foreign code, a `CUstream`, to this device. Work that is submitted to the result runs on that
    /// stream, in order with the commands that foreign code enqueues there. The stream is never destroyed here.
    ///
    /// `owner` keeps the stream alive. It is dropped on a thread of the device, some time after the last handle of the
    /// result is dropped and its work has run.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device is not a GPU of this process. [`Error::Misuse`] for the stream of a thread
    /// (`CU_STREAM_PER_THREAD`). [`Error::WrongDevice`] if the stream belongs to another context than the primary one
    /// of this GPU. Otherwise an error of the device.
    ///
    /// # Safety
    /// - The handles are those of a stream that exists until `owner` is dropped.
    /// - While work is submitted to the result, foreign code does not capture the stream.
    /// - Device memory of this library that foreign commands on the stream access is ordered by the caller.
    pub unsafe fn add_foreign_stream(&self, raw: RawStream, owner: ForeignOwner) -> Result<Stream> {
        let foreign = of(self)?;
        let id = StreamId(self.core().next_id());
        // SAFETY: `raw` exists until `owner` is dropped, and is not captured while work is submitted to it.
        unsafe { foreign.add_stream(id, raw, owner) }?;
        let timeline = Timeline::new(id, 0, self.capabilities().ordered_visibility);
        self.core().streams.insert(timeline.clone());
        Ok(Stream::new(self.clone(), timeline, OnDrop::Destroy))
    }
}

impl Allocation {
    /// Memory that belongs to `owner`. Uses of it come after the work that was submitted to `stream` so far.
    ///
    /// # Errors
    /// The errors of [`DeviceBuffer::from_raw_parts`](crate::DeviceBuffer::from_raw_parts).
    ///
    /// # Safety
    /// The rules of [`DeviceBuffer::from_raw_parts`](crate::DeviceBuffer::from_raw_parts).
    pub(crate) unsafe fn of_foreign(
        stream: &Stream,
        address: u64,
        bytes: u64,
        owner: ForeignOwner,
    ) -> Result<Arc<Self>> {
        if stream.is_recording() {
            return Err(Misuse::ExchangeInRecording.into());
        }
        let device = stream.device().clone();
        let (foreign, id) = (of(&device)?, AllocId(device.core().next_id()));
        // SAFETY: the memory has `bytes` bytes at `address` and exists until `owner` is dropped. The allocation forgets
        // the memory before it drops the owner.
        unsafe { foreign.add_memory(id, address, bytes) }?;
        // A submission, so that an event behind it covers the work that foreign code enqueued on the stream.
        // SAFETY: enqueues nothing.
        let at = unsafe { stream.submit_foreign(&mut |_| Ok(())) };
        let at = at.inspect_err(|_| {
            // SAFETY: no submission named the memory.
            _ = unsafe { foreign.forget_memory(id) };
        })?;
        Ok(Self::foreign(device, id, bytes, at, owner))
    }

    /// Gives the memory to foreign code, which frees it, and returns its address. Returns the owner too, if it was
    /// foreign memory. Later work of `stream` comes after the uses of the memory so far.
    ///
    /// # Errors
    /// The errors of [`DeviceBuffer::into_raw_parts`](crate::DeviceBuffer::into_raw_parts).
    pub(crate) fn give_to_foreign(
        self: Arc<Self>,
        stream: &Stream,
    ) -> Result<(u64, Option<ForeignOwner>)> {
        if stream.is_recording() {
            return Err(Misuse::ExchangeInRecording.into());
        }
        let others = (Arc::strong_count(&self) - 1).max(1);
        let mut this = Arc::into_inner(self).ok_or(Error::StillShared { others })?;
        let device = this.device().clone();
        let (foreign, mut address) = (of(&device)?, 0);
        let whole = Operand::new(&this, 0..this.bytes(), Access::Write);
        // SAFETY: enqueues nothing. The stream waits for the earlier uses.
        unsafe {
            submit_foreign_on(stream, &[whole], None, &mut |_, addresses| {
                address = addresses.first().copied().unwrap_or_default();
                Ok(())
            })
        }?;
        let owner = this.take_owner();
        if owner.is_none() {
            this.forget()?;
        }
        // SAFETY: the last owner of the allocation is dropped here, and frees nothing.
        unsafe { foreign.forget_memory(this.id()) }?;
        Ok((address, owner))
    }
}

/// The part of a GPU that works with foreign code.
fn of(device: &Device) -> Result<&dyn Foreign> {
    let unsupported = || Error::unsupported(Feature::ForeignWork, &device.info().address);
    device.core().backend.foreign().ok_or_else(unsupported)
}
