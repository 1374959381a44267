//! A stream of the driver, with its numbers and its events.
//!
//! # Which thread may touch which field
//! - `accepted` is stored by the thread that submits, after the driver took the submission. A reader that sees a number
//!   may rely on it: everything up to it is in the driver's stream.
//! - `event` is created and recorded under its lock. Its number is `accepted`, read before the recording, so the
//!   recording covers at least that number. If another thread records again before a wait, the wait covers more.
//! - `foreign` changes only while no checkpoint can be enqueued. While it is set, no checkpoint is enqueued: foreign
//!   code may be capturing the stream, and would capture the checkpoint.
//! - `lent` is set while `querying` is locked, and `status` holds that lock. So the stream is not lent for the first
//!   time, and then captured, between the look at `lent` and the query, which would end the capture.

use super::{CheckpointEvents, Reports, passed::Passed};
use crate::{
    cuda::{
        context::{Bound, Primary, ReclaimQueue, Reclaimable},
        driver::api::{EVENT_DISABLE_TIMING, EventHandle, StreamHandle},
    },
    protocol::{Error, Result, StreamId},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// A stream. Destroyed some time after its last holder dropped it.
pub(crate) struct DriverStream {
    pub(crate) id: StreamId,
    pub(crate) raw: StreamHandle,
    /// The number up to which the stream is known to be complete; [`completed`](Self::completed) reads it.
    pub(crate) passed: Passed,
    accepted: AtomicU64,
    event: Mutex<RecordedEvent>,
    foreign: AtomicBool,
    /// Whether foreign code ever had the raw stream, and may capture it.
    lent: AtomicBool,
    querying: Mutex<()>,
    pub(crate) reports: Reports,
    /// The last number that was reported. Used by the completion thread alone.
    reported: AtomicU64,
    reclaim: &'static ReclaimQueue,
}

/// The event that other streams and blocked callers wait for, created by the first wait.
#[derive(Default)]
struct RecordedEvent {
    event: Option<EventHandle>,
    /// The number up to which its latest recording covers the stream.
    number: u64,
}

impl DriverStream {
    pub(crate) fn new(id: StreamId, raw: StreamHandle, reclaim: &'static ReclaimQueue) -> Self {
        Self {
            id,
            raw,
            passed: Passed::default(),
            accepted: AtomicU64::new(0),
            event: Mutex::default(),
            foreign: AtomicBool::new(false),
            lent: AtomicBool::new(false),
            querying: Mutex::default(),
            reports: Reports::default(),
            reported: AtomicU64::new(0),
            reclaim,
        }
    }

    /// A stream that no driver knows. When it is dropped, no driver is called.
    #[cfg(test)]
    pub(crate) fn without_driver(id: u64) -> Self {
        Self::new(StreamId(id), StreamHandle::NULL, Box::leak(Box::default()))
    }

    /// The number of the last submission that the driver took.
    #[inline]
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }

    /// Records that the driver took submission `number`.
    #[inline]
    pub(crate) fn accept(&self, number: u64) {
        self.accepted.store(number, Ordering::Release);
    }

    /// The number up to which the stream is known to be complete.
    #[inline]
    pub(crate) fn completed(&self) -> u64 {
        self.passed.load()
    }

    /// Returns an error if `number` was not submitted.
    #[inline]
    pub(crate) fn check_accepted(&self, number: u64) -> Result<()> {
        if number <= self.accepted() { Ok(()) } else { Err(self.not_accepted(number)) }
    }

    #[cold]
    fn not_accepted(&self, number: u64) -> Error {
        let what = format!("submission {number} of stream {}", self.id.0).into();
        Error::OutOfRange { what, detail: format!("the last one is {}", self.accepted()) }
    }

    /// Makes later work of `consumer` wait until submission `number` of this stream is complete. A capture of this
    /// stream by foreign code then includes the consumer.
    pub(crate) fn wait_for(
        &self,
        number: u64,
        consumer: &DriverStream,
        primary: &Primary,
        bound: &Bound,
    ) -> Result<()> {
        if self.completed() >= number {
            return Ok(());
        }
        let event = self.event_after(number, primary, bound)?;
        if self.was_lent() {
            consumer.lend();
        }
        // SAFETY: the caller holds both streams, and this one owns the event (rules 3 and 5); 0 means no flags.
        unsafe { primary.api.stream_wait(consumer.raw, event, 0) }
            .map_err(|failed| primary.error(failed))
    }

    /// The stream's event, recorded after submission `number`. Valid while the caller holds the stream.
    pub(crate) fn event_after(
        &self,
        number: u64,
        primary: &Primary,
        bound: &Bound,
    ) -> Result<EventHandle> {
        let mut recorded = self.event.lock();
        let event = match recorded.event {
            Some(event) => event,
            None => *recorded.event.insert(new_event(primary, bound)?),
        };
        if recorded.number < number {
            self.check_accepted(number)?;
            let covered = self.accepted();
            // SAFETY: the caller holds the stream, which owns the event.
            unsafe { primary.api.event_record(event, self.raw) }
                .map_err(|failed| primary.error(failed))?;
            recorded.number = covered;
        }
        Ok(event)
    }

    /// Raises the number that was reported last. Returns whether it grew. Called by the completion thread alone.
    pub(crate) fn raise_reported(&self, number: u64) -> bool {
        let grew = self.reported.load(Ordering::Relaxed) < number;
        if grew {
            self.reported.store(number, Ordering::Relaxed);
        }
        grew
    }

    /// Whether foreign code may be enqueuing on the stream now.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire)
    }

    /// Returns the raw stream for foreign code, which may capture it from now on.
    pub(crate) fn lend(&self) -> StreamHandle {
        if !self.was_lent() {
            let _querying = self.querying();
            self.lent.store(true, Ordering::Release);
        }
        self.raw
    }

    /// While the guard lives, the stream is not lent for the first time.
    pub(super) fn querying(&self) -> MutexGuard<'_, ()> {
        self.querying.lock()
    }

    /// Whether foreign code ever had the raw stream.
    pub(crate) fn was_lent(&self) -> bool {
        self.lent.load(Ordering::Acquire)
    }

    /// Foreign code begins to enqueue on the stream. Until [`end_foreign`](Self::end_foreign), no checkpoint is
    /// enqueued.
    pub(crate) fn begin_foreign(&self) {
        self.reports.without_checkpoints(|| self.foreign.store(true, Ordering::Release));
    }

    /// Foreign code has returned. Enqueues the checkpoint that was held back, if there is one.
    pub(crate) fn end_foreign(&self, enqueue: impl Fn(u64, &mut CheckpointEvents) -> bool) {
        self.reports.without_checkpoints(|| self.foreign.store(false, Ordering::Release));
        self.reports.renew(|| self.accepted(), enqueue);
    }
}

impl Drop for DriverStream {
    fn drop(&mut self) {
        let mut events: Vec<_> = self.reports.events().take().collect();
        events.extend(self.event.get_mut().event);
        self.reclaim.put(Box::new(RetiredStream { stream: self.raw, events }));
    }
}

/// The handles of a stream that was dropped.
struct RetiredStream {
    stream: StreamHandle,
    events: Vec<EventHandle>,
}

impl Reclaimable for RetiredStream {
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        _: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        // The driver frees them when the work in flight has run.
        // SAFETY: the last holder dropped the stream, which owned the events.
        unsafe {
            _ = primary.api.stream_destroy(self.stream);
            for event in self.events {
                _ = primary.api.event_destroy(event);
            }
        }
        None
    }
}

/// An event without a time stamp, which makes recording cheap.
pub(crate) fn new_event(primary: &Primary, _: &Bound) -> Result<EventHandle> {
    let mut event = EventHandle::NULL;
    // SAFETY: writes one handle; the context is bound.
    unsafe { primary.api.event_create(&mut event, EVENT_DISABLE_TIMING) }
        .map_err(|failed| primary.error(failed))?;
    Ok(event)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn number_beyond_the_last_submission_is_an_error() {
        let stream = DriverStream::without_driver(7);
        stream.accept(3);
        assert_eq!(stream.check_accepted(3), Ok(()));
        let error = stream.check_accepted(4).unwrap_err().to_string();
        assert_eq!(error, "submission 4 of stream 7: the last one is 3");
    }

    #[test]
    fn no_checkpoint_is_enqueued_while_foreign_code_runs() {
        let stream = DriverStream::without_driver(7);
        let checkpoints = std::cell::RefCell::new(Vec::new());
        let enqueue = |number, _: &mut CheckpointEvents| {
            let takes = !stream.is_foreign();
            checkpoints.borrow_mut().push((number, takes));
            takes
        };
        stream.accept(1);
        stream.begin_foreign();
        stream.reports.want(1, || stream.accepted(), enqueue);
        assert!(stream.reports.covers(1) && stream.reports.enqueued() < 1);
        stream.accept(2);
        stream.end_foreign(enqueue);
        assert!(stream.reports.covers(2) && stream.reports.enqueued() == 2);
        assert_eq!(*checkpoints.borrow(), [(1, false), (2, true)]);
    }
}
