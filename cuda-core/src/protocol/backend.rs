//! The traits between the library and a device, the description and the properties of a device, and its notices.

use std::{any::Any, sync::Arc, thread::ThreadId};

use crate::protocol::{
    Answer, Control, Error, Foreign, GraphCacheInfo, HostBlock, Request, Result, StreamId,
    Submission, Ticket,
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

/// The limits and properties of a backend, as plain data. A wrapper forwards them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The maximum number of submissions in flight on a stream. A client that has more to submit waits.
    pub submissions_in_flight: u64,
    /// The limit on the bytes of host memory that the copies in flight on a stream use. A client that has more to
    /// submit waits. One copy may use more: it is submitted when less than the limit is in flight.
    pub host_bytes_in_flight: u64,
    /// The maximum number of bytes of device memory that this client may allocate. The client counts them, and refuses
    /// an allocation beyond the quota without asking the backend.
    pub memory_quota: u64,
    /// Whether a complete submission makes visible the host bytes of all submissions that it came after. These may be
    /// on other streams. True for devices of this process. If it is false, the client waits for each stream's own
    /// report before it touches host memory.
    pub ordered_visibility: bool,
    /// Whether [`Backend::host_block`](super::Backend::host_block) may block for long, because it pins memory. Clients
    /// then call it on a helper thread when they are inside a poll.
    pub slow_host_blocks: bool,
    /// Whether the backend takes graphs ([`Control::CreateGraph`](super::Control::CreateGraph)).
    pub graphs: bool,
    /// Whether a graph may have loops ([`Work::Repeat`](super::Work::Repeat)).
    pub loops: bool,
    /// Whether the backend has a graph cache, which needs deferrable submissions
    /// ([`Backend::submit_deferrable`](super::Backend::submit_deferrable)).
    pub graph_cache: bool,
    /// Whether the backend takes launches with [attributes](super::LaunchAttributes) and answers
    /// [`Request::Occupancy`](super::Request::Occupancy).
    pub launch_attributes: bool,
    /// The maximum number of memory pools that this client may have in addition to the default one. 0 if the backend
    /// has no pools.
    pub pools: u32,
    /// The maximum number of streams that this client may have, including the one that the library itself uses.
    pub streams: u32,
    /// Whether pools can be [managed](super::PoolSpec::is_managed). Managed memory does not count against the quota.
    pub managed_pools: bool,
    /// Whether allocations can grow ([`Control::Reserve`](super::Control::Reserve)).
    pub growable: bool,
    /// Whether the backend skips submissions that no caller waits for ([`Control::Cancel`](super::Control::Cancel)).
    pub cancels: bool,
    /// Whether the backend discards deferrable submissions that no caller waits for, while it holds them
    /// ([`Backend::submit_deferrable`](super::Backend::submit_deferrable)). The client then sends
    /// [`Control::Cancel`](super::Control::Cancel) before it flushes such submissions, and otherwise only if `cancels`.
    pub discards_held: bool,
    /// Whether a client may make a new allocation of dropped memory without a free. The backend does not see that the
    /// allocation is new. So it must not track initialized bytes or lost contents of single allocations.
    pub reuses_memory: bool,
    /// The thread that delivers all notices and all replies, if only one does. The client then refuses to wait for the
    /// device on this thread, as inside a waker, because the wait would not end.
    pub only_thread: Option<ThreadId>,
}

impl Capabilities {
    /// Returns the usual capabilities of a device of this process with `memory` bytes.
    pub fn local(memory: u64) -> Self {
        Self {
            submissions_in_flight: 768,
            host_bytes_in_flight: 256 << 20,
            memory_quota: memory,
            ordered_visibility: true,
            slow_host_blocks: false,
            graphs: false,
            loops: false,
            graph_cache: false,
            launch_attributes: true,
            pools: 0,
            streams: u32::MAX,
            managed_pools: false,
            growable: false,
            cancels: false,
            discards_held: false,
            reuses_memory: false,
            only_thread: None,
        }
    }
}

/// The description of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The address that opens it: `cpu`, `cuda:0`.
    pub address: String,
    /// Its name, as the vendor prints it.
    pub name: String,
    /// The device memory in bytes.
    pub memory: u64,
    /// The number of multiprocessors, or of cores of a CPU device.
    pub multiprocessors: u32,
    /// The compute capability, such as (9, 0). For a CPU device it is the newest one whose PTX it takes.
    pub compute_capability: (u32, u32),
    /// The maximum number of threads in a block.
    pub max_threads_per_block: u32,
    /// The maximum number of bytes of shared memory of a block.
    pub max_shared_bytes: u32,
    /// The CUDA version of the driver, such as (13, 0); `None` without a driver.
    pub driver: Option<(u32, u32)>,
}

impl DeviceInfo {
    /// Creates a description with the limits that every CUDA device has. The caller fills in the rest.
    pub fn new(address: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            name: name.into(),
            memory: 0,
            multiprocessors: 1,
            compute_capability: (5, 0),
            max_threads_per_block: 1024,
            max_shared_bytes: 48 << 10,
            driver: None,
        }
    }

    /// Returns whether the device runs clusters of blocks: compute capability 9.0 and later.
    pub fn has_clusters(&self) -> bool {
        self.compute_capability >= (9, 0)
    }
}

/// A report from a backend. [`Control::Want`](super::Control::Want) requests [`Progress`](Notice::Progress). The other
/// notices need no request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// The progress of a stream. Cumulative: a later notice replaces an earlier one.
    ///
    /// Failures of the submissions that it covers, and of their predecessors on other streams, were reported before.
    Progress {
        /// The stream.
        stream: StreamId,
        /// The number of the last accepted submission. The host memory that uploads up to this number read may be
        /// changed again.
        accepted: u64,
        /// The number of the last complete submission. Submissions up to this number have run or were skipped, and the
        /// bytes of their downloads are visible.
        complete: u64,
    },
    /// A submission failed, or was skipped because of an earlier failure. Its write set is poisoned. Wakes no task: the
    /// progress that covers it follows.
    Failed {
        /// The submission.
        ticket: Ticket,
        /// The root cause.
        error: Error,
    },
    /// A kernel faulted. Submissions that have not begun are skipped and fail with this error, until the device is
    /// reset. Wakes no task.
    Faulted {
        /// The fault.
        error: Error,
    },
    /// Text that a kernel printed, sent before the progress that covers the launch. Wakes no task. A GPU's driver
    /// writes such text to standard output itself, so the CUDA backend sends none.
    Output {
        /// The output of one call of `printf`, or of several.
        text: String,
    },
    /// The device is lost permanently: submissions that are not complete will never complete.
    Lost {
        /// The cause.
        error: Error,
    },
}
