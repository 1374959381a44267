//! The traits between the library and a device.

use std::{any::Any, sync::Arc};

use super::{
    Answer, Capabilities, Control, DeviceInfo, Foreign, GraphCacheInfo, HostBlock, Notice, Request,
    Result, StreamId, Submission, Ticket,
};

/// The device side of the protocol, which takes submissions and controls, and sends notices.
///
/// # Safety
/// When an implementation reports completion, the library lets the program access host bytes and reuses device memory.
/// So an implementation keeps these rules:
/// - Submissions of one stream run in the order of their numbers, each after its `after`. Streams run concurrently.
/// - A [`Notice::Progress`] covers only submissions that have run or were skipped. `complete` means that no copy up to
///   that number accesses host memory any more, and that the bytes of the downloads are visible. `accepted` covers an
///   upload only when the backend reads its host bytes no more.
/// - A submission that fails or is skipped is reported by [`Notice::Failed`] before any progress that covers it.
/// - [`Backend::host_block`] gives a block of at least the requested length.
pub unsafe trait Backend: Send + Sync + 'static {
    /// Returns the description of this device.
    fn info(&self) -> &DeviceInfo;

    /// Returns the limits and properties of this backend.
    fn capabilities(&self) -> &Capabilities;

    /// Takes a submission. Returns without waiting for the device. `host` holds every block that the work names.
    ///
    /// # Errors
    /// An error that is known at once. The submission was then not taken, and its number is used again.
    ///
    /// # Safety
    /// - Until an upload is accepted, and until other work is complete, the caller keeps the blocks in `host` alive,
    ///   touches no bytes that the work writes, and writes no bytes that it reads.
    /// - Submissions that use the same device memory are ordered by their streams and `after`, unless all only read.
    /// - A launched kernel stays inside the memory that its relocations state.
    /// - Until the call returns, the caller retires no stream, drops no graph and unloads no module that the submission
    ///   names.
    unsafe fn submit(&self, submission: &Submission<'_>, host: &[Arc<HostBlock>]) -> Result<()>;

    /// Submits work as [`submit`](Backend::submit) does, but the backend may hold it until the next
    /// [`flush`](Backend::flush) of the stream, together with the deferrable work before and after it. Any other call
    /// that depends on the work also flushes it. The graph cache of a GPU launches work that repeats as a graph.
    ///
    /// # Errors
    /// The errors of [`submit`](Backend::submit).
    ///
    /// # Safety
    /// The requirements of [`submit`](Backend::submit). The modules of launches are not unloaded before the ticket is
    /// complete.
    unsafe fn submit_deferrable(
        &self,
        submission: &Submission<'_>,
        host: &[Arc<HostBlock>],
    ) -> Result<()> {
        // SAFETY: the rules of `submit` are among those of this function.
        unsafe { self.submit(submission, host) }
    }

    /// Starts the held work of a stream. Returns without waiting for the device.
    ///
    /// # Errors
    /// The error that lost the device.
    ///
    /// # Safety
    /// The requirements of [`peek`](Backend::peek).
    unsafe fn flush(&self, _stream: StreamId) -> Result<()> {
        Ok(())
    }

    /// Requests a report of progress, as [`Control::Want`] does, for a ticket that no caller waits for yet. A backend
    /// that holds the submission until a [`flush`](Backend::flush) may send the report after that.
    ///
    /// # Errors
    /// An error that is known at once: no report will come.
    fn report(&self, ticket: Ticket) -> Result<()> {
        // SAFETY: the control frees, retires, drops and unloads nothing.
        unsafe { self.control(Control::Want { ticket }) }
    }

    /// Returns the counts of the graph cache. They are 0 for a backend without one.
    fn graph_cache(&self) -> GraphCacheInfo {
        GraphCacheInfo::default()
    }

    /// Takes a control. Never blocks, so it may be called inside a poll.
    ///
    /// # Errors
    /// An error that is known at once, such as [`Error::OutOfMemory`](super::Error::OutOfMemory). The control then had
    /// no effect.
    ///
    /// # Safety
    /// No later submission uses the memory, stream, graph or module that the control frees, retires, drops or unloads.
    unsafe fn control(&self, control: Control) -> Result<()>;

    /// Takes a request. Never blocks. Calls [`Answer::give`] exactly once, on any thread, perhaps before this returns.
    fn request(&self, request: Request, answer: Answer);

    /// Returns the number of the last submission of a stream that is known to be complete. Does no I/O and does not
    /// block.
    ///
    /// # Errors
    /// The error that lost the device.
    ///
    /// # Safety
    /// Until the call returns, the caller does not retire the stream.
    unsafe fn peek(&self, stream: StreamId) -> Result<u64>;

    /// Blocks the calling thread until a ticket is complete and its failures are reported.
    ///
    /// # Errors
    /// The error that lost the device.
    ///
    /// # Safety
    /// The requirements of [`peek`](Backend::peek).
    unsafe fn block_until(&self, ticket: Ticket) -> Result<()>;

    /// Allocates a zeroed block of host memory, for copies at full speed (pinned, for a GPU). It has at least `bytes`
    /// bytes. May block where [`Capabilities::slow_host_blocks`] says so.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`](super::Error::OutOfHostMemory).
    fn host_block(&self, bytes: usize) -> Result<HostBlock> {
        HostBlock::heap(bytes)
    }

    /// Prepares the calling thread for many calls of this backend, until the guard is dropped. The calls give the same
    /// results without it, but may take longer: on a GPU each call makes the context current on its thread.
    fn enter(&self) -> Option<Box<dyn Any>> {
        None
    }

    /// Returns the part that lends streams to foreign code, if there is one.
    fn foreign(&self) -> Option<&dyn Foreign>;

    /// Takes over the resources that submissions in flight still use. The client calls this last, when it closes the
    /// device. The backend drops the resources when the streams have passed the tickets. Never blocks.
    fn close(&self, retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)>);
}

/// A receiver of notices.
///
/// # Safety
/// An implementation that forwards notices changes nothing in them.
pub unsafe trait NoticeSink: Send + Sync {
    /// Takes one notice. Called on a thread of the backend, while it holds no lock: tasks that it wakes may submit at
    /// once. Only [`Notice::Failed`] and [`Notice::Faulted`] may be delivered inside a call of the client.
    ///
    /// # Safety
    /// The notice is true: it reports only progress and failures that have occurred, by the rules of [`Backend`].
    unsafe fn notice(&self, notice: Notice);
}

/// A provider, which finds and opens the devices of one kind.
///
/// # Safety
/// The backends that it opens keep the rules of [`Backend`], and it passes `notices` only to backends that keep these
/// rules.
pub unsafe trait Provider: Send + Sync {
    /// Returns the part of an address before the colon: `cuda` in `cuda:1`.
    fn scheme(&self) -> &'static str;

    /// Lists the devices of this machine, in order of their numbers. The list is empty if there are none.
    ///
    /// # Errors
    /// An error if there may be devices that cannot be listed.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Opens the device with this number. Its notices go to `notices`.
    ///
    /// # Errors
    /// [`Error::NoDevice`](super::Error::NoDevice), or an error of the driver.
    fn open(&self, ordinal: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>>;
}
