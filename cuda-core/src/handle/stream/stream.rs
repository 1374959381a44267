//! [`Stream`], a handle of an ordered queue of work, with the submissions that it has made.
//!
//! The module `submit` sends work to the backend, and `join` orders streams. This module has the creation of streams,
//! the queries of a handle, and what a handle requests beside work: [`Credit`] limits how much a stream has in flight,
//! a device may launch the submissions of a [`Window`] together, a [`MemoryRequest`] allocates in the order of the
//! stream, and a [`RecordedName`] names the work that a recording takes.
//!
//! # The submissions of a handle
//! A handle has [`Sent`], so that an op waits for its own work and reports its own failures, not those of other tasks
//! on the stream. A submission writes `first` and `last` under the stream's order lock. A report of a failure also
//! writes `first`, without that lock. Consecutive numbers extend the run `first..=last`. If another handle submitted in
//! between, the run moves to `more` and a new one begins. A failure is reported once. The report clears the runs, so an
//! op that handled an error does not see it again.

use std::sync::Arc;

use crate::{
    handle::{
        device::{Device, wrong_device},
        stream::{allocation::Allocation, recorder::Recorder},
    },
    order::{Waiter, timeline::Timeline},
    protocol::{AllocId, Control, Error, Result, StreamId, Ticket},
    runtime::{Cancelled, PoolCore},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// An ordered queue of work on a device.
///
/// Work on one stream runs in order. The library orders work on different streams that uses the same buffer. Enqueued
/// work still runs after the last handle is dropped.
///
/// A clone is another handle of the same stream. Every handle counts its own submissions. [`last`](Stream::last) and
/// [`outcome`](Stream::outcome) report on the submissions of their handle only.
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
    /// Present in a handle with a pool: see [`Stream::in_pool`].
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
        Shared { device, timeline, on_drop, recording: None, pooled: None }.into_handle()
    }

    /// A stream of a recording, which allocates on the live stream `home`. A plan has none: its memory does not exist.
    pub(crate) fn recorded(device: Device, home: Option<Stream>, recorder: Arc<Recorder>) -> Self {
        let id = StreamId(device.core().next_id());
        let timeline = Timeline::new(id, home.as_ref().map_or(0, Stream::priority), true);
        let recording = Some(RecordingParts { recorder, home });
        Shared { device, timeline, on_drop: OnDrop::Nothing, recording, pooled: None }.into_handle()
    }

    /// A handle of the same stream whose allocations come from a pool of `of`. `None` is the default pool.
    pub(crate) fn with_pool(&self, of: Device, pool: Option<Arc<PoolCore>>) -> Self {
        let Shared { device, timeline, recording, pooled, .. } = &*self.shared;
        let plain = pooled.as_ref().map_or(&self.shared, |pooled| &pooled.plain).clone();
        let shared = Shared {
            device: device.clone(),
            timeline: timeline.clone(),
            on_drop: OnDrop::Nothing,
            recording: recording.clone(),
            pooled: Some(Pooled { device: of, pool, plain }),
        };
        shared.into_handle()
    }

    /// Returns whether this is a stream of a recording: work that is submitted to it does not run now.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// assert!(!stream.is_recording()); // a stream of the device
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.shared.recording.is_some()
    }

    /// The recorder, if this is a stream of a recording.
    #[inline]
    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.shared.recording.as_ref().map(|recording| &recording.recorder)
    }

    #[inline]
    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        &self.shared.timeline
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
    /// assert_eq!(stream.in_flight(), 0);
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
        Ok(self.timeline().progress.completed() >= last)
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
    /// assert_eq!(stream.in_flight(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The first failure among the submissions of this handle, or the error that lost the device. [`Error::Misuse`]
    /// inside the [output function](Device::set_output) of the device, and inside a waker of a leased device.
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
    /// The errors of [`synchronize`](Stream::synchronize).
    #[inline]
    pub fn synchronize_to(&self, number: u64) -> Result<()> {
        // First: the output function can run before the submission that prints is published.
        self.device().core().streams.output.check_may_wait()?;
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
        request_report(self, number)?;
        Ok(Waiter::new(self.timeline().clone(), number))
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
        if let Err(error) = self.sent.failure(self) {
            return Some(error);
        }
        let progress = &self.timeline().progress;
        let in_flight = progress.completed() < self.last().number;
        let fault = || self.device().core().streams.last_fault();
        progress.ended().or_else(|| if in_flight { fault() } else { None })
    }

    /// Returns the credit of the stream: the permission to submit more, within the limits of its device for work in
    /// flight.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// stream.credit().wait()?; // blocks while too much is in flight
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn credit(&self) -> Credit<'_> {
        Credit(self)
    }

    /// Allocates memory in the order of this stream, from the pool of this handle. Every stream of the device may use
    /// it immediately. The contents are unspecified. On a stream of a plan, the memory does not exist on the device.
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
    /// [`Error::OutOfMemory`], [`Error::WrongDevice`] if the pool is one of another device, or an error of the device.
    pub fn allocate(&self, bytes: u64) -> Result<Arc<Allocation>> {
        let pool = match &self.shared.pooled {
            Some(Pooled { device, pool, .. }) => {
                check_pool(self.device(), device, pool.as_ref())?;
                pool.as_ref()
            }
            None => None,
        };
        MemoryRequest { stream: self, pool, bytes }.allocate()
    }
}

impl Clone for Stream {
    /// Returns a second handle of the stream that counts no submissions yet.
    #[inline]
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), sent: Sent::new() }
    }
}

impl Shared {
    fn into_handle(self) -> Stream {
        Stream { shared: Arc::new(self), sent: Sent::new() }
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

impl Device {
    /// Creates a stream. With more than a hundred streams alive, a GPU's driver may wait for every running kernel
    /// before it creates another one.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let stream = device.new_stream()?;
    /// let buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?; // enqueued on this stream
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// An error of the backend.
    pub fn new_stream(&self) -> Result<Stream> {
        self.new_stream_with_priority(0)
    }

    /// Creates a stream with a priority. Lower numbers run first, and 0 is the default. A device uses the nearest
    /// priority that it has; one without priorities ignores it.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let urgent = device.new_stream_with_priority(-5)?;
    /// assert_eq!(urgent.priority(), -5);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the device allows no further stream, or an error of the backend.
    pub fn new_stream_with_priority(&self, priority: i32) -> Result<Stream> {
        self.core().reclaim_all();
        Ok(Stream::new(self.clone(), self.core().create_stream(priority)?, OnDrop::Destroy))
    }

    /// Borrows a stream from the device's pool, because creating one is slow. An idle stream is preferred. The stream
    /// goes back to the pool when its last handle is dropped, even if work is in flight.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let stream = device.lend_stream(0)?;
    /// let id = stream.id();
    /// drop(stream); // goes back to the pool
    /// assert_eq!(device.lend_stream(0)?.id(), id);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the device allows no further stream, or an error of the backend.
    pub fn lend_stream(&self, priority: i32) -> Result<Stream> {
        lend(self, priority, self.core().spare_streams.take(priority))
    }

    /// Borrows a stream as [`lend_stream`](Device::lend_stream) does, but only one that is known to be idle. Creates
    /// one if the pool has none.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let stream = device.lend_idle_stream(0)?;
    /// assert_eq!(stream.in_flight(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the device allows no further stream, or an error of the backend.
    pub fn lend_idle_stream(&self, priority: i32) -> Result<Stream> {
        lend(self, priority, self.core().spare_streams.take_idle(priority))
    }
}

/// Lends a spare stream, or a new one.
fn lend(device: &Device, priority: i32, spare: Option<Arc<Timeline>>) -> Result<Stream> {
    let timeline = spare.map_or_else(|| device.core().create_stream(priority), Ok)?;
    Ok(Stream::new(device.clone(), timeline, OnDrop::Recycle))
}

/// The number of separate earlier runs that a handle stores, 16 KiB. Beyond it the two oldest runs are merged. The
/// merged run also reports failures of other handles' submissions between them.
const MAX_RUNS: usize = 1024;

/// After this many joins a handle drops the joined handles that are complete.
const SETTLE_EVERY: usize = 32;

/// The submissions of a handle.
pub(super) struct Sent {
    first: AtomicU64,
    last: AtomicU64,
    /// Whether `more` is not empty. Readable without the lock.
    has_more: AtomicBool,
    /// Whether a task will wait for the last submission.
    awaited: AtomicBool,
    /// Whether it may count submissions of other handles as its own, besides those of joined handles.
    counts_others: AtomicBool,
    /// Whether a window is open.
    window: AtomicBool,
    /// Whether work was submitted in the window.
    deferred: AtomicBool,
    /// On the heap: most handles make one run of submissions and join nothing.
    more: Mutex<Option<Box<More>>>,
}

#[derive(Default)]
struct More {
    runs: Vec<(u64, u64)>,
    /// Joined handles that may have submissions in flight. Their submissions count as this handle's.
    joined: Vec<Joined>,
    /// The failure of a joined handle that is complete.
    failed: Option<Error>,
}

/// A handle that another one has joined.
struct Joined {
    handle: Stream,
    /// Whether only the joining handle waits for the submissions of this one.
    is_part: bool,
}

impl Sent {
    #[inline]
    pub(super) fn new() -> Self {
        let [first, last] = [1, 0].map(AtomicU64::new);
        let [has_more, awaited, counts_others, window, deferred] = [false; 5].map(AtomicBool::new);
        let more = Mutex::default();
        Self { first, last, has_more, awaited, counts_others, window, deferred, more }
    }

    #[inline]
    pub(super) fn open_window(&self) {
        self.window.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn has_open_window(&self) -> bool {
        self.window.load(Ordering::Relaxed)
    }

    /// Closes the window. Returns whether work was submitted in it.
    #[inline]
    pub(super) fn close_window(&self) -> bool {
        self.window.store(false, Ordering::Relaxed);
        let deferred = self.deferred.load(Ordering::Relaxed);
        if deferred {
            self.deferred.store(false, Ordering::Relaxed);
        }
        deferred
    }

    /// Returns whether the next submission is deferrable, because a window is open, and records that the window has
    /// one.
    #[inline]
    pub(super) fn note_deferrable(&self) -> bool {
        let open = self.window.load(Ordering::Relaxed);
        if open {
            self.deferred.store(true, Ordering::Relaxed);
        }
        open
    }

    /// The number of the last submission of this handle; 0 if there is none.
    #[inline]
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Whether `number` follows the last submission of this handle, so that no other handle submitted in between.
    #[inline]
    pub(super) fn continues_with(&self, number: u64) -> bool {
        self.last.load(Ordering::Relaxed) + 1 == number
    }

    /// Marks that a task will wait for the last submission of this handle, also after later submissions.
    pub(super) fn set_awaited(&self) {
        self.awaited.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    /// Counts a submission. Called with the stream's order lock held.
    #[inline]
    pub(super) fn count(&self, number: u64) {
        let last = self.last.load(Ordering::Relaxed);
        if last + 1 != number {
            self.begin_run(last, number);
        }
        self.last.store(number, Ordering::Release);
    }

    /// Counts a submission of another handle, unless this one has a later submission. Called with the stream's order
    /// lock held.
    pub(super) fn count_up_to(&self, number: u64) {
        if number > self.last.load(Ordering::Relaxed) {
            self.counts_others.store(true, Ordering::Relaxed);
            self.count(number);
        }
    }

    #[inline]
    fn begin_run(&self, last: u64, number: u64) {
        if last >= self.first.load(Ordering::Relaxed) {
            self.keep_run(last);
        }
        self.first.store(number, Ordering::Relaxed);
    }

    #[cold]
    fn keep_run(&self, last: u64) {
        let mut more = self.more.lock();
        let more = more.get_or_insert_default();
        more.runs.push((self.first.load(Ordering::Relaxed), last));
        if more.runs.len() > MAX_RUNS {
            let (first, _) = more.runs.remove(0);
            more.runs[0].0 = first;
            self.counts_others.store(true, Ordering::Relaxed);
        }
        self.has_more.store(true, Ordering::Release);
    }

    /// Copies the runs of another handle of the same stream, so that this handle counts its submissions too.
    pub(super) fn join_runs(&self, other: &Sent) {
        self.first.store(other.first.load(Ordering::Relaxed), Ordering::Relaxed);
        self.last.store(other.last(), Ordering::Release);
        self.awaited.store(other.is_awaited(), Ordering::Release);
        self.counts_others.store(other.counts_others.load(Ordering::Relaxed), Ordering::Relaxed);
        if other.has_more.load(Ordering::Acquire) {
            let theirs = other.more.lock();
            let Some(theirs) = theirs.as_deref() else { return };
            let mut more = self.more.lock();
            let more = more.get_or_insert_default();
            more.runs.extend_from_slice(&theirs.runs);
            more.joined.extend(theirs.joined.iter().map(Joined::snapshot));
            more.failed.clone_from(&theirs.failed);
            self.has_more.store(true, Ordering::Release);
        }
    }

    /// Counts the submissions of another handle, also of another stream, as this one's. `is_part` says that no other
    /// handle waits for them.
    pub(super) fn join(&self, handle: Stream, is_part: bool) {
        let mut more = self.more.lock();
        let more = more.get_or_insert_default();
        if more.joined.len() % SETTLE_EVERY == SETTLE_EVERY - 1 {
            more.settle();
        }
        more.joined.push(Joined { handle, is_part });
        self.has_more.store(true, Ordering::Release);
    }

    /// Whether everything that was sent up to submission `until` is known to be complete, and none of it failed. Also
    /// false if earlier runs or joined handles have to be checked.
    #[inline]
    pub(super) fn is_flawless(&self, stream: &Stream, until: u64) -> bool {
        stream.timeline().progress.is_flawless(until) && !self.has_more.load(Ordering::Acquire)
    }

    /// The result of everything that was sent up to submission `until`, if that is known to be complete.
    #[inline]
    pub(super) fn outcome(&self, stream: &Stream, until: u64) -> Option<Result<()>> {
        let (first, last) = (self.first.load(Ordering::Relaxed), self.last().min(until));
        let outcome = stream.timeline().progress.outcome_of(first, last, until)?;
        if outcome.is_ok() && !self.has_more.load(Ordering::Acquire) {
            return Some(outcome);
        }
        Some(self.report(stream, until, outcome))
    }

    #[cold]
    fn report(&self, stream: &Stream, until: u64, run: Result<()>) -> Result<()> {
        let mut lock = self.more.lock();
        let mut none = More::default();
        let more = lock.as_deref_mut().unwrap_or(&mut none);
        let earlier = more.runs.iter().filter(|(first, _)| *first <= until);
        let mut earlier =
            earlier.map(|(first, last)| stream.timeline().progress.failure_in(*first, *last));
        let failed = earlier.find_map(Result::err);
        let failed = failed.or_else(|| more.failed.take());
        let failed =
            failed.or_else(|| more.joined.iter().find_map(|joined| joined.failure().err()));
        let result = failed.map_or(run, Err);
        // Complete and without a failure, so they never will have one.
        more.runs.retain(|(_, last)| *last > until);
        if result.is_ok() && more.runs.is_empty() && more.joined.is_empty() {
            self.has_more.store(false, Ordering::Release);
        }
        if result.is_err() {
            // Reported once, so the run becomes empty. `last` stays, because waits use it.
            self.first.store(self.last.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let reported = lock.take();
            self.has_more.store(false, Ordering::Release);
            drop(lock);
            drop(reported);
        }
        result
    }

    /// The first failure among everything that was sent, without regard to whether it is complete.
    pub(super) fn failure(&self, stream: &Stream) -> Result<()> {
        let (first, last) = (self.first.load(Ordering::Relaxed), self.last());
        if first <= last {
            stream.timeline().progress.failure_in(first, last)?;
        }
        if self.has_more.load(Ordering::Acquire) {
            let more = self.more.lock();
            let Some(more) = more.as_deref() else { return Ok(()) };
            let failure =
                |(first, last): &(u64, u64)| stream.timeline().progress.failure_in(*first, *last);
            more.runs.iter().try_for_each(failure)?;
            more.failed.clone().map_or(Ok(()), Err)?;
            more.joined.iter().try_for_each(Joined::failure)?;
        }
        Ok(())
    }

    /// Calls `each` with the submissions in flight that only this handle and its parts count.
    fn in_flight(&self, stream: &Stream, each: &mut dyn FnMut(StreamId, u64, u64)) {
        let completed = stream.timeline().progress.completed();
        self.own_runs(completed, &mut |first, last| each(stream.id(), first, last));
        if self.has_more.load(Ordering::Acquire) {
            let more = self.more.lock();
            let Some(more) = more.as_deref() else { return };
            let parts = more.joined.iter().filter(|joined| joined.is_part);
            parts.for_each(|part| part.handle.sent.in_flight(&part.handle, each));
        }
    }

    /// Calls `each` with the runs of submissions behind `completed`. Leaves all of them out if one may have submissions
    /// of other handles.
    fn own_runs(&self, completed: u64, each: &mut dyn FnMut(u64, u64)) {
        if self.counts_others.load(Ordering::Relaxed) {
            return;
        }
        let mut pass_on = |first: u64, last: u64| {
            if first <= last && completed < last {
                each(first.max(completed + 1), last);
            }
        };
        pass_on(self.first.load(Ordering::Relaxed), self.last());
        if self.has_more.load(Ordering::Acquire)
            && let Some(more) = self.more.lock().as_deref()
        {
            more.runs.iter().for_each(|(first, last)| pass_on(*first, *last));
        }
    }
}

impl Joined {
    fn snapshot(&self) -> Self {
        Self { handle: self.handle.snapshot(), is_part: self.is_part }
    }

    /// As [`Sent::failure`].
    fn failure(&self) -> Result<()> {
        self.handle.sent.failure(&self.handle)
    }
}

impl More {
    /// Drops joined handles that are complete, and keeps the first failure among them. So the list does not grow with
    /// every fork of a long operation.
    fn settle(&mut self) {
        let failed = &mut self.failed;
        self.joined.retain(|joined| {
            let handle = &joined.handle;
            let complete = handle.timeline().progress.completed() >= handle.last().number;
            if complete && failed.is_none() {
                *failed = joined.failure().err();
            }
            !complete
        });
    }
}

/// Returns another stream: one of the same recording, or one with the same priority that the device
/// [lends](Device::lend_stream).
///
/// # Errors
/// An error of the backend.
pub fn lend_branch(stream: &Stream) -> Result<Stream> {
    let device = stream.device();
    let lent = match &stream.shared.recording {
        Some(RecordingParts { recorder, home }) => {
            Stream::recorded(device.clone(), home.clone(), recorder.clone())
        }
        None => device.lend_stream(stream.priority())?,
    };
    Ok(match &stream.shared.pooled {
        Some(Pooled { device, pool, .. }) => lent.with_pool(device.clone(), pool.clone()),
        None => lent,
    })
}

/// Requests a report that covers submission `number`, unless that submission is known to be complete. A later wait for
/// it then does not wait for later work.
///
/// # Errors
/// The error of the backend if it refuses to report.
pub fn request_report(stream: &Stream, number: u64) -> Result<()> {
    let timeline = stream.timeline();
    let number = number.min(timeline.published());
    if timeline.progress.completed() < number {
        stream.device().core().try_want(Ticket { stream: stream.id(), number })?;
    }
    Ok(())
}

/// States that no caller waits for the submissions of a handle any more. The device may skip those that have not begun
/// and whose results cannot be seen. Does not call the backend: the next submission passes this on.
#[inline]
pub fn cancel(stream: &Stream) {
    let core = stream.device().core();
    if core.capabilities.cancels {
        let cancel = &mut |stream, first, last| {
            core.cancel(Cancelled { stream, first, last, downloads: false });
        };
        stream.sent.in_flight(stream, cancel);
    }
}

/// Makes the stream request the report of this handle's last submission before another handle submits. This holds from
/// the next submission on. A task that waits for this handle then does not wait for later work.
///
/// A report covers everything that is submitted until it is requested. A request at the time of the wait would also
/// cover the later work of other handles.
pub fn report_before_others(stream: &Stream) {
    stream.sent.set_awaited();
}

/// Checks that the device of a stream is not lost. Does not ask the device.
///
/// # Errors
/// The error that lost the device.
pub fn check_not_lost(stream: &Stream) -> Result<()> {
    stream.timeline().progress.ended().map_or(Ok(()), Err)
}

/// The window of a handle of a stream. While it is open, the device may hold work that is submitted through this
/// handle, and launch it as a graph if the same work came before (see
/// [`Device::graph_cache`](crate::Device::graph_cache)). Work that depends on it, waits for it and queries about it are
/// unaffected.
pub struct Window<'a>(pub &'a Stream);

impl Window<'_> {
    /// Opens the window.
    #[inline]
    pub fn open(&self) {
        if self.0.device().core().has_graph_cache() && !self.0.is_recording() {
            self.0.sent.open_window();
        }
    }

    /// Returns whether the window is open.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.0.sent.has_open_window()
    }

    /// Closes the window, if it is open. The device begins the work that it holds.
    #[inline]
    pub fn close(&self) {
        if self.0.sent.close_window() {
            self.flush();
        }
    }

    /// Closes the window as [`close`](Self::close) does, when no caller waits for the work of this handle any more. The
    /// device may discard the work that it holds, if the memory that this work writes was dropped.
    #[cold]
    pub fn discard(&self) {
        if !self.0.sent.close_window() {
            return;
        }
        let core = self.0.device().core();
        if core.capabilities.discards_held {
            self.0.sent.in_flight(self.0, &mut |stream, first, last| {
                core.send_cancelled(Cancelled { stream, first, last, downloads: false });
            });
            // The device needs the frees to know that nothing reads the memory.
            core.reclaim_memory();
        }
        self.flush();
    }

    fn flush(&self) {
        // SAFETY: the stream is held. If the device is lost, waits for the work report it.
        _ = unsafe { self.0.device().core().backend.flush(self.0.id()) };
    }
}

/// The credit of a stream. It has credit while fewer submissions, and fewer bytes of host memory, are in flight than
/// its device allows ([`Capabilities`](crate::protocol::Capabilities)). Returned by [`Stream::credit`].
///
/// A submission without credit is no error. But a driver may then block the thread that enqueues, and the use of host
/// memory has no limit.
#[derive(Clone, Copy, Debug)]
pub struct Credit<'a>(&'a Stream);

impl Credit<'_> {
    /// Returns whether the stream has credit to submit more work. Does not ask the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// assert!(stream.credit().is_available()); // nothing is in flight
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn is_available(&self) -> bool {
        let capabilities = &self.0.device().core().capabilities;
        self.0.in_flight() < capabilities.submissions_in_flight
            && self.host_bytes_in_flight() < capabilities.host_bytes_in_flight
    }

    /// Returns the bytes of host memory that the copies in flight use. Does not ask the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let a = DeviceBuffer::uploaded(&stream, device.pinned::<u8>(1 << 10)?)?;
    /// assert!(stream.credit().host_bytes_in_flight() <= device.capabilities().host_bytes_in_flight);
    /// stream.synchronize()?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn host_bytes_in_flight(&self) -> u64 {
        self.0.timeline().retention.bytes() as u64
    }

    /// Returns a waiter that is ready when at most half of each limit of the stream is in flight. Work that is
    /// submitted after this call does not count.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// use std::task::{Context, Poll, Waker};
    /// let mut waiter = stream.credit().waiter()?;
    /// // In a task, with the waker of the task. Nothing is in flight, so it is ready.
    /// assert!(matches!(waiter.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(()))));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of the backend if it refuses to report.
    pub fn waiter(&self) -> Result<Waiter> {
        // Work that was cancelled meanwhile may be skipped, which gives credit sooner.
        self.0.device().core().reclaim_memory();
        self.0.waiter(self.half())
    }

    /// The number of the submission to wait for. When it is complete, at most half of each limit is in flight. Work
    /// that is submitted after this call does not count.
    fn half(&self) -> u64 {
        let capabilities = &self.0.device().core().capabilities;
        let submissions = self.0.submitted().saturating_sub(capabilities.submissions_in_flight / 2);
        let bytes = usize::try_from(capabilities.host_bytes_in_flight / 2).unwrap_or(usize::MAX);
        submissions.max(self.0.timeline().retention.leaves_at_most(bytes))
    }

    /// Blocks the calling thread until the stream has credit. Failures of the work that it waits for are no error here,
    /// because the work may belong to other handles.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 16)?;
    /// for value in 0..200 {
    ///     stream.credit().wait()?; // without it, this loop could use any amount of host memory
    ///     buffer.upload(&stream, 0, PinnedBuffer::copied_from(&device, &[value; 16])?)?;
    /// }
    /// stream.synchronize()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that lost the device. [`Error::Misuse`] inside the [output function](crate::Device::set_output) of the
    /// device, and inside a waker of a leased device.
    pub fn wait(&self) -> Result<()> {
        let core = self.0.device().core();
        while !self.is_available() {
            core.streams.output.check_may_wait()?;
            core.synchronize(self.0.timeline(), self.half())?;
        }
        Ok(())
    }

    /// Checks that the stream has credit, for a caller that cannot wait for it. Asks the device, without blocking, if
    /// the progress that is known leaves no credit.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// match stream.credit().check() {
    ///     Ok(()) => println!("submit the next batch"),
    ///     Err(error @ Error::Busy { .. }) => println!("refuse the request: {error}"),
    ///     Err(lost) => return Err(lost),
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`], or the error that lost the device.
    pub fn check(&self) -> Result<()> {
        if self.is_available() || self.0.is_recording() {
            return Ok(());
        }
        self.0.query()?;
        if self.is_available() { Ok(()) } else { Err(self.busy()) }
    }

    #[cold]
    fn busy(&self) -> Error {
        let capabilities = &self.0.device().core().capabilities;
        let (in_flight, limit) = (self.0.in_flight(), capabilities.submissions_in_flight);
        if in_flight >= limit {
            return Error::Busy { unit: "submissions", in_flight, limit };
        }
        let in_flight = self.host_bytes_in_flight();
        let limit = capabilities.host_bytes_in_flight;
        Error::Busy { unit: "bytes of host memory", in_flight, limit }
    }
}

/// Checks that a pool of `of`, the default one if `None`, may be used on `device`.
#[inline]
pub(in crate::handle) fn check_pool(
    device: &Device,
    of: &Device,
    pool: Option<&Arc<PoolCore>>,
) -> Result<()> {
    if device == of {
        return Ok(());
    }
    let named = |pool: &Arc<PoolCore>| format!("the memory pool `{}`", pool.name);
    Err(wrong_device(pool.map_or("the default memory pool".into(), named), of, device))
}

/// A request for memory in the order of a stream, from a pool of its device. `None` is the default pool.
pub(in crate::handle) struct MemoryRequest<'a> {
    pub(in crate::handle) stream: &'a Stream,
    pub(in crate::handle) pool: Option<&'a Arc<PoolCore>>,
    pub(in crate::handle) bytes: u64,
}

impl MemoryRequest<'_> {
    /// Does the work of [`Stream::allocate`].
    pub(in crate::handle) fn allocate(&self) -> Result<Arc<Allocation>> {
        let Self { stream, pool, bytes } = *self;
        let core = stream.device().core();
        if let Some(RecordingParts { recorder, home }) = &stream.shared.recording {
            if let Some(home) = home {
                return recorder.allocate(|| MemoryRequest { stream: home, ..*self }.allocate());
            }
            let (device, id) = (stream.device().clone(), AllocId(core.next_id()));
            return Ok(Allocation::planned(device, id, bytes, stream.last()));
        }
        if let Some(id) = core.take_dropped(pool, bytes, stream.id()) {
            return Ok(self.reuse(id));
        }
        core.reclaim_memory();
        match self.try_once() {
            // A request beyond the total never succeeds.
            Err(Error::OutOfMemory { requested, total, .. }) if requested <= total => {
                core.recover_memory();
                self.try_once()
            }
            other => other,
        }
    }

    /// Makes an allocation from dropped memory whose uses are complete or on this stream. This saves a free, an
    /// allocation and their time on the stream. Work on the allocation comes after everything that this stream has
    /// submitted so far.
    fn reuse(&self, id: AllocId) -> Arc<Allocation> {
        let Self { stream, pool, bytes } = *self;
        let timeline = stream.timeline();
        // This ticket covers every use on this stream: each was published before its handle was dropped.
        let last = Ticket { stream: stream.id(), number: stream.submitted() };
        if last.number > stream.sent.last() && last.number > timeline.progress.completed() {
            // As after an allocation, a wait for this handle covers it.
            let _order = timeline.order.lock();
            stream.sent.count_up_to(last.number);
        }
        Allocation::new(stream.device().clone(), id, bytes, last, pool.cloned())
    }

    #[inline]
    fn try_once(&self) -> Result<Arc<Allocation>> {
        let Self { stream, pool, bytes } = *self;
        let device = stream.device().clone();
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
            stream.ordered().control(allocate).inspect_err(|_| core.refund(counted, bytes))?;
        core.raise_peak(counted);
        Ok(Allocation::new(device, id, bytes, ticket, pool.cloned()))
    }
}

/// Names the work that a recording takes until the guard is dropped, inside the names that it has already. Returns
/// `None` for a live stream, whose work has no names.
pub fn name_recorded(stream: &Stream, name: &str) -> Option<RecordedName> {
    let recorder = stream.recorder()?.clone();
    let key = recorder.begin_name(name)?;
    Some(RecordedName { recorder, key })
}

/// Names recorded work until it is dropped.
pub struct RecordedName {
    recorder: Arc<Recorder>,
    key: u64,
}

impl Drop for RecordedName {
    fn drop(&mut self) {
        self.recorder.end_name(self.key);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn own_runs(sent: &Sent, completed: u64) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        sent.own_runs(completed, &mut |first, last| runs.push((first, last)));
        runs
    }

    #[test]
    fn own_runs_have_no_submissions_of_other_handles() {
        let sent = Sent::new();
        assert_eq!(own_runs(&sent, 0), []);
        [1, 2, 5, 6].into_iter().for_each(|number| sent.count(number));
        assert_eq!(own_runs(&sent, 0), [(5, 6), (1, 2)]);
        assert_eq!(own_runs(&sent, 1), [(5, 6), (2, 2)]);
        assert_eq!(own_runs(&sent, 6), []);
        // Memory that another handle used in submission 9 is reused.
        sent.count_up_to(9);
        sent.count(10);
        assert_eq!(own_runs(&sent, 0), []);

        // More runs than are kept: the oldest ones become one, with the submissions between them.
        let sent = Sent::new();
        let mut numbers = (1..).step_by(2);
        (&mut numbers).take(MAX_RUNS + 1).for_each(|number| sent.count(number));
        assert_eq!(own_runs(&sent, 0).len(), MAX_RUNS + 1);
        numbers.take(1).for_each(|number| sent.count(number));
        assert_eq!(own_runs(&sent, 0), []);
    }
}
