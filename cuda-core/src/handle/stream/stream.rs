//! Streams: handles of ordered queues of work. `submit` sends work to the backend, and `join` orders streams.
//!
//! The device may launch the submissions of a *window* together. *Credit* limits how much a stream has in flight. Work of a
//! recording has the names of its operations.

use std::sync::Arc;

use crate::{
    handle::{
        device::Device,
        stream::{allocation::Allocation, recorder::Recorder, sent::Sent},
    },
    order::{Waiter, progress::Progress, timeline::Timeline},
    protocol::{AllocId, Control, Error, Result, StreamId, Ticket},
    runtime::PoolCore,
};

/// An ordered queue of work on a device.
///
/// Work on one stream runs in order. The library orders work on different streams that uses the same buffer. Dropping
/// the last handle lets the enqueued work run on.
///
/// A clone is another handle of the same stream. Every handle counts its own submissions: [`last`](Stream::last) and
/// [`outcome`](Stream::outcome) are about these.
pub struct Stream {
    shared: Arc<Shared>,
    pub(super) sent: Sent,
}

struct Shared {
    device: Device,
    timeline: Arc<Timeline>,
    on_drop: OnDrop,
    /// Present in a stream of a recording.
    recording: Option<RecordingParts>,
    /// Present in a handle with a pool: see [`Stream::with_pool`].
    pooled: Option<Pooled>,
}

/// The pool of a handle.
struct Pooled {
    /// The device of the pool. Allocations fail if the stream is on another one.
    device: Device,
    /// `None` for the default pool.
    pool: Option<Arc<PoolCore>>,
    /// The handle without the pool, whose drop ends the stream.
    plain: Arc<Shared>,
}

/// The parts of a stream of a recording. The backend has no such stream.
#[derive(Clone)]
struct RecordingParts {
    recorder: Arc<Recorder>,
    /// The live stream on which memory is allocated. Absent in a plan, whose memory does not exist.
    home: Option<Stream>,
}

/// The action on a stream when its last handle is dropped.
#[derive(Clone, Copy)]
pub(super) enum OnDrop {
    Destroy,
    Recycle,
    /// For a stream of a recording.
    Nothing,
}

impl Stream {
    pub(super) fn new(device: Device, timeline: Arc<Timeline>, on_drop: OnDrop) -> Self {
        Self::with(Shared { device, timeline, on_drop, recording: None, pooled: None })
    }

    fn with(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), sent: Sent::new() }
    }

    /// A stream of a recording, which allocates on `home`.
    pub(crate) fn recording(home: Stream, recorder: Arc<Recorder>) -> Self {
        Self::recorded(home.device().clone(), Some(home), recorder)
    }

    /// A stream of a plan, whose memory does not exist.
    pub(crate) fn planning(device: Device, recorder: Arc<Recorder>) -> Self {
        Self::recorded(device, None, recorder)
    }

    fn recorded(device: Device, home: Option<Stream>, recorder: Arc<Recorder>) -> Self {
        let id = StreamId(device.core().next_id());
        let timeline = Timeline::new(id, home.as_ref().map_or(0, Stream::priority), true);
        let recording = Some(RecordingParts { recorder, home });
        Self::with(Shared { device, timeline, on_drop: OnDrop::Nothing, recording, pooled: None })
    }

    /// Another stream: one of the same recording, or one with the same priority that the device
    /// [lends](Device::lend_stream).
    ///
    /// # Errors
    /// An error of the backend.
    #[doc(hidden)]
    pub fn lend_branch(&self) -> Result<Stream> {
        let lent = match &self.shared.recording {
            Some(RecordingParts { recorder, home }) => {
                Self::recorded(self.device().clone(), home.clone(), recorder.clone())
            }
            None => self.device().lend_stream(self.priority())?,
        };
        Ok(match &self.shared.pooled {
            Some(Pooled { device, pool, .. }) => lent.with_pool(device.clone(), pool.clone()),
            None => lent,
        })
    }

    /// A handle of the same stream whose allocations come from a pool of `of`. `None` is the default pool.
    pub(crate) fn with_pool(&self, of: Device, pool: Option<Arc<PoolCore>>) -> Self {
        let Shared { device, timeline, recording, pooled, .. } = &*self.shared;
        let plain = pooled.as_ref().map_or(&self.shared, |it| &it.plain).clone();
        Self::with(Shared {
            device: device.clone(),
            timeline: timeline.clone(),
            on_drop: OnDrop::Nothing,
            recording: recording.clone(),
            pooled: Some(Pooled { device: of, pool, plain }),
        })
    }

    /// The pool of this handle. `None` is the default pool.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if it is a pool of another device.
    #[inline]
    pub(super) fn pool(&self) -> Result<Option<&Arc<PoolCore>>> {
        let Some(Pooled { device, pool, .. }) = &self.shared.pooled else { return Ok(None) };
        self.device().check_pool(pool.as_ref(), device)?;
        Ok(pool.as_ref())
    }

    /// Whether work that is submitted here is recorded and does not run.
    #[doc(hidden)]
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.shared.recording.is_some()
    }

    /// The recorder, if this is a stream of a recording.
    #[inline]
    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.shared.recording.as_ref().map(|recording| &recording.recorder)
    }

    /// The live stream that memory comes from, if this is a stream of a recording that runs.
    pub(super) fn home(&self) -> Option<&Stream> {
        self.shared.recording.as_ref().and_then(|recording| recording.home.as_ref())
    }

    #[inline]
    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        &self.shared.timeline
    }

    #[inline]
    pub(crate) fn progress(&self) -> &Progress {
        &self.timeline().progress
    }

    /// Returns the id of the stream on its device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let (stream, other) = (device.new_stream()?, device.new_stream()?);
    /// assert_ne!(stream.id(), other.id());
    /// assert_eq!(stream.id(), stream.clone().id()); // a clone is the same stream
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn id(&self) -> StreamId {
        self.timeline().id
    }

    /// Returns the priority of the stream. Lower numbers run first where the device knows priorities.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// assert_eq!(stream.priority(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn priority(&self) -> i32 {
        self.timeline().priority
    }

    /// Returns the device of the stream.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// assert_eq!(stream.device(), &device);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Returns the last submission that was made through this handle. Its number is 0 if there is none.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// assert_eq!(stream.last().number, 0);
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// assert!(stream.last().number > 0);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn last(&self) -> Ticket {
        Ticket { stream: self.id(), number: self.sent.last() }
    }

    /// Returns the number of submissions so far, through all handles.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let clone = stream.clone();
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// assert_eq!(clone.submitted(), stream.last().number); // all handles count here
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn submitted(&self) -> u64 {
        self.timeline().published()
    }

    /// Returns whether all submissions so far are known to be complete. Does not ask the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// stream.synchronize()?;
    /// assert!(stream.is_known_idle());
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn is_known_idle(&self) -> bool {
        self.in_flight() == 0
    }

    /// Returns the number of submissions that are not known to be complete. Does not ask the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// assert!(stream.in_flight() <= stream.submitted());
    /// stream.synchronize()?;
    /// assert_eq!(stream.in_flight(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.timeline().in_flight()
    }

    /// Returns whether another thread is submitting to the stream at this moment. A submission now would wait for that
    /// thread.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// assert!(!stream.is_contended()); // no other thread has this stream
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.timeline().order.is_locked()
    }

    /// Asks the device, without blocking, whether all submissions so far are complete.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// while !stream.query()? {
    ///     std::hint::spin_loop(); // other work
    /// }
    /// assert!(stream.is_known_idle());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that lost the device.
    pub fn query(&self) -> Result<bool> {
        if self.is_recording() {
            return Err(Error::needs_host_data("a query of the stream"));
        }
        let last = self.timeline().published();
        self.device().core().query(self.timeline())?;
        Ok(self.progress().completed() >= last)
    }

    /// Blocks the calling thread until all submissions so far, through any handle, are complete.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let mut x = DeviceBuffer::<u32>::zeroed(&stream, 4)?; // enqueued, perhaps not complete
    /// x.fill(&stream, 7)?;
    /// stream.synchronize()?; // complete, or the first failure
    /// assert!(stream.is_known_idle());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The first failure among the submissions of this handle, or the error that lost the device. [`Error::Misuse`] inside
    /// the [output function](Device::set_output) of the device.
    pub fn synchronize(&self) -> Result<()> {
        let last = self.timeline().published();
        self.synchronize_to(last)
    }

    /// Blocks the calling thread until submission `number` is complete.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let mut x = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// let filled = x.fill(&stream, 7)?;
    /// x.fill(&stream, 8)?;
    /// stream.synchronize_to(filled.number)?; // the second fill may still run
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`synchronize`](Stream::synchronize).
    #[inline]
    pub fn synchronize_to(&self, number: u64) -> Result<()> {
        // First: the output function can run before the submission that prints is published.
        self.device().check_may_wait()?;
        let number = number.min(self.timeline().published());
        let synchronized = self.device().core().synchronize(self.timeline(), number);
        if synchronized.is_ok() && self.sent.is_flawless(self, number) {
            return Ok(());
        }
        self.outcome(number).unwrap_or(synchronized)
    }

    /// Returns a waiter for submission `number`, which blocks no thread. Asks the device for a report if the submission
    /// is not known to be complete.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// use std::{future::poll_fn, pin::pin, task::{Context, Waker}};
    /// let mut x = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// let mut waiter = stream.waiter(x.fill(&stream, 7)?.number)?;
    /// let mut complete = pin!(poll_fn(move |task| waiter.poll(task))); // a future, for any executor
    /// # while complete.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of the backend if it refuses to report.
    pub fn waiter(&self, number: u64) -> Result<Waiter> {
        let number = number.min(self.timeline().published());
        self.request_report(number)?;
        Ok(Waiter::new(self.timeline().clone(), number))
    }

    /// Requests a report that covers submission `number`, unless that submission is known to be complete. A later wait
    /// for it then does not wait for later work.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// stream.request_report(stream.last().number)?; // a later wait for it does not wait for later work
    /// stream.synchronize()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of the backend if it refuses to report.
    pub fn request_report(&self, number: u64) -> Result<()> {
        let number = number.min(self.timeline().published());
        if self.progress().completed() < number {
            self.device().core().try_want(Ticket { stream: self.id(), number })?;
        }
        Ok(())
    }

    /// Makes the stream request the report of this handle's last submission before another handle submits. This holds
    /// from the next submission on. A task that waits for this handle then does not wait for later work.
    ///
    /// A report covers everything that is submitted until it is requested. A request at the time of the wait would also
    /// cover the later work of other handles.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// stream.report_before_others(); // before the submissions that a task will wait for
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// stream.synchronize()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn report_before_others(&self) {
        self.sent.set_awaited();
    }

    /// Returns the result of this handle's submissions up to `number`: `Ok`, or the first failure. `None` if that
    /// submission is not known to be complete. A failure is reported once. Does not ask the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// let last = stream.last().number;
    /// stream.synchronize()?;
    /// assert_eq!(stream.outcome(last), Some(Ok(()))); // `None` while it is in flight
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn outcome(&self, number: u64) -> Option<Result<()>> {
        self.sent.outcome(self, number)
    }

    /// The first failure among the submissions of this handle, without regard to whether they are complete.
    pub(super) fn sent_failure(&self) -> Result<()> {
        self.sent.failure(self)
    }

    /// Returns the error that affects the submissions of this handle, if there is one. It is the first failure of a
    /// submission of this handle, or else the error that lost the device. While submissions of this handle are in
    /// flight, it may also be the device's latest fault. Does not ask the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// stream.synchronize()?;
    /// assert_eq!(stream.fault(), None);
    /// # Ok::<(), Error>(())
    /// ```
    #[cold]
    pub fn fault(&self) -> Option<Error> {
        if self.is_recording() {
            return None;
        }
        if let Err(error) = self.sent_failure() {
            return Some(error);
        }
        let in_flight = self.progress().completed() < self.last().number;
        let fault = || self.device().core().streams.last_fault();
        self.progress().ended().or_else(|| if in_flight { fault() } else { None })
    }
}

impl Clone for Stream {
    /// Returns a second handle of the stream that counts no submissions yet.
    #[inline]
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), sent: Sent::new() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        match self.on_drop {
            OnDrop::Destroy => self.device.core().retire_stream(self.timeline.id),
            OnDrop::Nothing => {}
            OnDrop::Recycle => self.device.core().spare_streams.give(self.timeline.clone()),
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({} on {})", self.id().0, self.device().info().address)
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.timeline(), other.timeline())
    }
}

impl Eq for Stream {}

impl Stream {
    /// Opens a window: until [`close_window`](Self::close_window), the device may hold work that is submitted through this
    /// handle, and launch it as a graph if the same work came before (see
    /// [`Device::graph_cache`](crate::Device::graph_cache)). Work that depends on it, waits for it and queries about it are
    /// unaffected.
    #[doc(hidden)]
    #[inline]
    pub fn open_window(&self) {
        if self.device().core().has_graph_cache() && !self.is_recording() {
            self.sent.open_window();
        }
    }

    /// Whether this handle has an open window.
    #[doc(hidden)]
    #[inline]
    pub fn has_open_window(&self) -> bool {
        self.sent.has_open_window()
    }

    /// Closes the window of this handle, if it has one. The device begins the work that it holds.
    #[doc(hidden)]
    #[inline]
    pub fn close_window(&self) {
        if self.sent.close_window() {
            // SAFETY: the stream is held. If the device is lost, waits for the work report it.
            _ = unsafe { self.device().core().backend.flush(self.id()) };
        }
    }
}

impl Stream {
    /// Returns the bytes of host memory that the copies in flight use. Does not ask the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let a = DeviceBuffer::uploaded(&stream, device.pinned::<u8>(1 << 10)?)?;
    /// assert!(stream.host_bytes_in_flight() <= device.capabilities().host_bytes_in_flight);
    /// stream.synchronize()?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn host_bytes_in_flight(&self) -> u64 {
        self.timeline().retention.bytes() as u64
    }

    /// Returns whether the stream has credit to submit more work. It has credit while fewer submissions, and fewer
    /// bytes of host memory, are in flight than its device allows ([`Capabilities`](crate::protocol::Capabilities)).
    /// Does not ask the device.
    ///
    /// Submitting more is no error, but a driver may then block the thread that enqueues, and host memory is used without
    /// a limit.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// assert!(stream.has_credit()); // nothing is in flight
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn has_credit(&self) -> bool {
        let capabilities = &self.device().core().capabilities;
        self.in_flight() < capabilities.submissions_in_flight
            && self.host_bytes_in_flight() < capabilities.host_bytes_in_flight
    }

    /// Returns a waiter that is ready when at most half of each limit of the stream is in flight. Work that is
    /// submitted after this call does not count.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// use std::task::{Context, Poll, Waker};
    /// let mut waiter = stream.credit_waiter()?;
    /// // In a task, with the waker of the task. Nothing is in flight, so it is ready.
    /// assert!(matches!(waiter.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(()))));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`waiter`](Self::waiter).
    pub fn credit_waiter(&self) -> Result<Waiter> {
        self.waiter(self.half_of_credit())
    }

    /// The number of the submission to wait for. When it is complete, at most half of each limit is in flight. Work
    /// that is submitted after this call does not count.
    fn half_of_credit(&self) -> u64 {
        let capabilities = &self.device().core().capabilities;
        let submissions = self.submitted().saturating_sub(capabilities.submissions_in_flight / 2);
        let bytes = usize::try_from(capabilities.host_bytes_in_flight / 2).unwrap_or(usize::MAX);
        submissions.max(self.timeline().retention.leaves_at_most(bytes))
    }

    /// Blocks the calling thread until the stream [has credit](Self::has_credit). Failures of the work that it waits for
    /// are no error here: the work may belong to others.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 16)?;
    /// for value in 0..200 {
    ///     stream.wait_for_credit()?; // without it, this loop could use any amount of host memory
    ///     buffer.upload(&stream, 0, PinnedBuffer::copied_from(&device, &[value; 16])?)?;
    /// }
    /// stream.synchronize()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that lost the device. [`Error::Misuse`] inside the [output function](crate::Device::set_output) of the device.
    pub fn wait_for_credit(&self) -> Result<()> {
        while !self.has_credit() {
            self.device().check_may_wait()?;
            self.device().core().synchronize(self.timeline(), self.half_of_credit())?;
        }
        Ok(())
    }

    /// Checks that the device is not lost. Does not ask the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// stream.check_not_lost()?; // an error from the fault on, until the device is reset
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that lost the device.
    pub fn check_not_lost(&self) -> Result<()> {
        self.progress().ended().map_or(Ok(()), Err)
    }

    /// Checks that the stream [has credit](Self::has_credit), for a caller that cannot wait for it. Asks the device,
    /// without blocking, if the progress that is known leaves no credit.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// match stream.check_credit() {
    ///     Ok(()) => println!("submit the next batch"),
    ///     Err(error @ Error::Busy { .. }) => println!("refuse the request: {error}"),
    ///     Err(lost) => return Err(lost),
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`], or the error that lost the device.
    pub fn check_credit(&self) -> Result<()> {
        if self.has_credit() || self.is_recording() {
            return Ok(());
        }
        self.query()?;
        if self.has_credit() { Ok(()) } else { Err(self.busy()) }
    }

    #[cold]
    fn busy(&self) -> Error {
        let capabilities = &self.device().core().capabilities;
        let (in_flight, limit) = (self.in_flight(), capabilities.submissions_in_flight);
        if in_flight >= limit {
            return Error::Busy { unit: "submissions", in_flight, limit };
        }
        let in_flight = self.host_bytes_in_flight();
        let limit = capabilities.host_bytes_in_flight;
        Error::Busy { unit: "bytes of host memory", in_flight, limit }
    }
}

impl Stream {
    /// Allocates memory in the order of this stream, from the pool of this handle. Every stream of the device may use it
    /// immediately. The contents are unspecified. On a stream of a plan, the memory does not exist on the device.
    ///
    /// If there is too little memory, this reclaims dropped buffers and tries once more. The device also returns the
    /// free memory of all pools to the system then, which takes a GPU about two milliseconds.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let allocation = stream.allocate(4096)?; // bytes; `DeviceBuffer` has a type
    /// assert_eq!(allocation.bytes(), 4096);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or an error of the device.
    pub fn allocate(&self, bytes: u64) -> Result<Arc<Allocation>> {
        self.allocate_from(self.pool()?, bytes)
    }

    /// As [`allocate`](Self::allocate), from a pool of the device. `None` is the default pool.
    pub(crate) fn allocate_from(
        &self,
        pool: Option<&Arc<PoolCore>>,
        bytes: u64,
    ) -> Result<Arc<Allocation>> {
        if let (Some(home), Some(recorder)) = (self.home(), self.recorder()) {
            return recorder.allocate(|| home.allocate_from(pool, bytes));
        }
        let core = self.device().core();
        if self.is_recording() {
            let id = AllocId(core.next_id());
            return Ok(Allocation::planned(self.device().clone(), id, bytes, self.last()));
        }
        if let Some(id) = core.take_dropped(pool, bytes, self.id()) {
            return Ok(self.reuse(id, pool, bytes));
        }
        core.reclaim_memory();
        match self.try_to_allocate(pool, bytes) {
            // A request beyond the total never succeeds.
            Err(Error::OutOfMemory { requested, total, .. }) if requested <= total => {
                core.recover_memory();
                self.try_to_allocate(pool, bytes)
            }
            other => other,
        }
    }

    /// Makes an allocation from dropped memory whose uses are complete or on this stream. This saves a free, an
    /// allocation and their time on the stream. Work on the allocation comes after everything that this stream has
    /// submitted so far.
    fn reuse(&self, id: AllocId, pool: Option<&Arc<PoolCore>>, bytes: u64) -> Arc<Allocation> {
        // This ticket covers every use on this stream: each was published before its handle was dropped.
        let last = Ticket { stream: self.id(), number: self.submitted() };
        if last.number > self.sent.last() && last.number > self.progress().completed() {
            // As after an allocation, a wait for this handle covers it.
            let _order = self.timeline().order.lock();
            self.sent.count_up_to(last.number);
        }
        Allocation::new(self.device().clone(), id, bytes, last, pool.cloned())
    }

    #[inline]
    fn try_to_allocate(&self, pool: Option<&Arc<PoolCore>>, bytes: u64) -> Result<Arc<Allocation>> {
        let device = self.device().clone();
        let core = device.core();
        let id = AllocId(core.next_id());
        let counted = pool.map(|pool| &**pool);
        core.charge(counted, bytes)?;
        let allocate = |at: Ticket| {
            let control = match counted {
                None => Control::Allocate { id, bytes, at },
                Some(pool) => Control::AllocateIn { pool: pool.id, id, bytes, at },
            };
            // SAFETY: the control frees, retires, drops and unloads nothing.
            unsafe { core.backend.control(control) }
        };
        // Made only once the backend took the allocation: dropping it frees.
        let ticket =
            self.ordered().control(allocate).inspect_err(|_| core.refund(counted, bytes))?;
        core.raise_peak(counted);
        Ok(Allocation::new(device, id, bytes, ticket, pool.cloned()))
    }
}

impl Stream {
    /// Names the work that this recording takes until the guard is dropped, inside the names that it has already.
    /// Returns `None` for a live stream, whose work has no names.
    #[doc(hidden)]
    pub fn name_recorded(&self, name: &str) -> Option<RecordedName> {
        let recorder = self.recorder()?.clone();
        let key = recorder.begin_name(name)?;
        Some(RecordedName { recorder, key })
    }
}

/// Names recorded work until it is dropped.
#[doc(hidden)]
pub struct RecordedName {
    recorder: Arc<Recorder>,
    key: u64,
}

impl Drop for RecordedName {
    fn drop(&mut self) {
        self.recorder.end_name(self.key);
    }
}
