//! The submissions that one handle of a stream has made, so that an op waits for its own work and reports its own
//! failures, not those of other tasks on the stream.
//!
//! # Which thread may touch which field
//! A submission writes `first` and `last` under the stream's order lock. A report of a failure also writes `first`,
//! without that lock. Consecutive numbers extend the run `first..=last`. If another handle submitted in between, the
//! run moves to `more` and a new one begins. A failure is reported once. The report clears the runs, so an op that
//! handled an error does not see it again.
//!
//! # Windows and credit
//! The device may launch the submissions of a window together. Credit limits how much a stream has in flight.

use crate::{
    handle::stream::stream::Stream,
    order::Waiter,
    protocol::{Error, Result},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The number of separate earlier runs that a handle stores, 16 KiB. Beyond it the two oldest runs are merged. The
/// merged run also reports failures of other handles' submissions between them.
const MAX_RUNS: usize = 1024;

/// After this many joins a handle drops the joined handles that are complete.
const SETTLE_EVERY: usize = 32;

pub(super) struct Sent {
    first: AtomicU64,
    last: AtomicU64,
    /// Whether `more` is not empty. Readable without the lock.
    has_more: AtomicBool,
    /// Whether a task will wait for the last submission.
    awaited: AtomicBool,
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
    joined: Vec<Stream>,
    /// The failure of a joined handle that is complete.
    failed: Option<Error>,
}

impl More {
    /// Drops joined handles that are complete, and keeps the first failure among them. So the list does not grow with
    /// every fork of a long operation.
    fn settle(&mut self) {
        let failed = &mut self.failed;
        self.joined.retain(|joined| {
            let complete = joined.progress().completed() >= joined.last().number;
            if complete && failed.is_none() {
                *failed = joined.sent_failure().err();
            }
            !complete
        });
    }
}

impl Sent {
    #[inline]
    pub(super) fn new() -> Self {
        let [first, last] = [1, 0].map(AtomicU64::new);
        let [has_more, awaited, window, deferred] = [false; 4].map(AtomicBool::new);
        Self { first, last, has_more, awaited, window, deferred, more: Mutex::default() }
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

    /// Returns whether the next submission is deferrable, because a window is open, and records that the window has one.
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

    /// Counts a submission of another handle, unless this one has a later submission. Called with the stream's order lock
    /// held.
    pub(super) fn count_up_to(&self, number: u64) {
        if number > self.last.load(Ordering::Relaxed) {
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
        }
        self.has_more.store(true, Ordering::Release);
    }

    /// Copies the runs of another handle of the same stream, so that this handle counts its submissions too.
    pub(super) fn join_runs(&self, other: &Sent) {
        self.first.store(other.first.load(Ordering::Relaxed), Ordering::Relaxed);
        self.last.store(other.last(), Ordering::Release);
        self.awaited.store(other.is_awaited(), Ordering::Release);
        if other.has_more.load(Ordering::Acquire) {
            let theirs = other.more.lock();
            let Some(theirs) = theirs.as_deref() else { return };
            let mut more = self.more.lock();
            let more = more.get_or_insert_default();
            more.runs.extend_from_slice(&theirs.runs);
            more.joined.extend(theirs.joined.iter().map(Stream::snapshot));
            more.failed.clone_from(&theirs.failed);
            self.has_more.store(true, Ordering::Release);
        }
    }

    /// Counts the submissions of another handle, also of another stream, as this one's.
    pub(super) fn join(&self, other: Stream) {
        let mut more = self.more.lock();
        let more = more.get_or_insert_default();
        if more.joined.len() % SETTLE_EVERY == SETTLE_EVERY - 1 {
            more.settle();
        }
        more.joined.push(other);
        self.has_more.store(true, Ordering::Release);
    }

    /// Whether everything that was sent up to submission `until` is known to be complete, and none of it failed. Also
    /// false if earlier runs or joined handles have to be checked.
    #[inline]
    pub(super) fn is_flawless(&self, stream: &Stream, until: u64) -> bool {
        stream.progress().is_flawless(until) && !self.has_more.load(Ordering::Acquire)
    }

    /// The result of everything that was sent up to submission `until`, if that is known to be complete.
    #[inline]
    pub(super) fn outcome(&self, stream: &Stream, until: u64) -> Option<Result<()>> {
        let (first, last) = (self.first.load(Ordering::Relaxed), self.last().min(until));
        let outcome = stream.progress().outcome_of(first, last, until)?;
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
        let mut earlier = earlier.map(|(first, last)| stream.progress().failure_in(*first, *last));
        let failed = earlier.find_map(Result::err);
        let failed = failed.or_else(|| more.failed.take());
        let failed = failed.or_else(|| more.joined.iter().find_map(|it| it.sent_failure().err()));
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
            stream.progress().failure_in(first, last)?;
        }
        if self.has_more.load(Ordering::Acquire) {
            let more = self.more.lock();
            let Some(more) = more.as_deref() else { return Ok(()) };
            let failure = |(first, last): &(u64, u64)| stream.progress().failure_in(*first, *last);
            more.runs.iter().try_for_each(failure)?;
            more.failed.clone().map_or(Ok(()), Err)?;
            more.joined.iter().try_for_each(Stream::sent_failure)?;
        }
        Ok(())
    }
}

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
