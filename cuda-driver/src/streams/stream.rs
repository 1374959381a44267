//! A stream of the driver, with its numbers and its events.
//!
//! # Which thread may touch which field
//! - `submitted` is stored by the thread that submits, after the driver took the submission. A reader that sees a
//!   number may rely on it: everything up to it is in the driver's stream.
//! - `event` is created and recorded under its lock. Its number is `submitted`, read before the recording, so the
//!   recording covers at least that number. If another thread records again before a wait, the wait covers more.
//! - `foreign` changes only while no checkpoint can be enqueued and `foreign_state` is locked; see `foreign_call`.
//! - `window` is locked while submissions of a window are held or passed to the driver. No thread locks two of them.
//!   `is_windowed` is stored under the lock, and can be read without it by the thread that submits.
//! - `held_back` is stored before a wait for another stream is enqueued.

use std::sync::Arc;

use cuda_core::{
    internals::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    protocol::{Error, ForeignOwner, Limit, Quantity, Result, StreamId},
};

use super::{Reports, event::new_event, foreign_state::ForeignState, passed::Passed};
use crate::{
    context::{Bound, Primary, ReclaimQueue, Reclaimable},
    driver::api::{EventHandle, StreamHandle},
    windows::{CacheMemory, Window},
};

/// A stream. Destroyed some time after its last holder dropped it.
pub(crate) struct DriverStream {
    pub(crate) id: StreamId,
    pub(crate) raw: StreamHandle,
    /// The number up to which the stream is known to be complete; [`completed`](Self::completed) reads it.
    pub(crate) passed: Passed,
    submitted: AtomicU64,
    event: Mutex<RecordedEvent>,
    /// The value of `submitted` when the stream was last made to wait for another one.
    held_back: AtomicU64,
    pub(super) foreign: AtomicBool,
    pub(super) foreign_state: Mutex<ForeignState>,
    pub(crate) reports: Reports,
    /// The last number that was reported. Used by the completion thread alone.
    reported: AtomicU64,
    window: Mutex<Window>,
    is_windowed: AtomicBool,
    /// Whether the stream was found idle, or a caller has waited until it was, since the last part of a window.
    was_idle: AtomicBool,
    /// The owner of the driver's stream, if that is foreign code.
    owner: Option<ForeignOwner>,
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
    pub(crate) fn new(
        id: StreamId,
        raw: StreamHandle,
        cached: Arc<CacheMemory>,
        reclaim: &'static ReclaimQueue,
    ) -> Self {
        Self {
            id,
            raw,
            passed: Passed::default(),
            submitted: AtomicU64::new(0),
            event: Mutex::default(),
            held_back: AtomicU64::new(u64::MAX),
            foreign: AtomicBool::new(false),
            foreign_state: Mutex::default(),
            reports: Reports::default(),
            reported: AtomicU64::new(0),
            window: Mutex::new(Window::new(cached)),
            is_windowed: AtomicBool::new(false),
            was_idle: AtomicBool::new(false),
            owner: None,
            reclaim,
        }
    }

    /// The same stream, which belongs to foreign code.
    pub(super) fn owned_by(self, owner: ForeignOwner) -> Self {
        let mut owned = self;
        owned.owner = Some(owner);
        owned
    }

    /// A stream that no driver knows. When it is dropped, no driver is called.
    #[cfg(test)]
    pub(crate) fn without_driver(id: u64) -> Self {
        Self::new(StreamId(id), StreamHandle::NULL, Arc::default(), Box::leak(Box::default()))
    }

    /// The number of the last submission that the driver took.
    #[inline]
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Records that the driver took submission `number`.
    #[inline]
    pub(crate) fn set_submitted(&self, number: u64) {
        self.submitted.store(number, Ordering::Release);
    }

    /// The number up to which the stream is known to be complete.
    #[inline]
    pub(crate) fn completed(&self) -> u64 {
        self.passed.load()
    }

    /// Whether submissions of a window came since its last end. Some of them may be held.
    #[inline]
    pub(crate) fn is_windowed(&self) -> bool {
        self.is_windowed.load(Ordering::Acquire)
    }

    /// The window of the stream, locked.
    #[inline]
    pub(crate) fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock()
    }

    /// Records that submissions of a window came, or that it has ended. Called with the window locked.
    #[inline]
    pub(crate) fn set_windowed(&self, windowed: bool) {
        self.is_windowed.store(windowed, Ordering::Release);
    }

    /// Records that the stream is idle, or that a caller waits until it is.
    #[inline]
    pub(crate) fn set_idle(&self) {
        self.was_idle.store(true, Ordering::Relaxed);
    }

    /// Returns whether that was recorded since the last call, and clears the record.
    #[inline]
    pub(crate) fn take_idle(&self) -> bool {
        let was_idle = self.was_idle.load(Ordering::Relaxed);
        if was_idle {
            self.was_idle.store(false, Ordering::Relaxed);
        }
        was_idle
    }

    /// Returns an error if `number` was not submitted.
    #[inline]
    pub(crate) fn check_submitted(&self, number: u64) -> Result<()> {
        if number <= self.submitted() { Ok(()) } else { Err(self.not_submitted(number)) }
    }

    #[cold]
    fn not_submitted(&self, number: u64) -> Error {
        let (stream, last) = (format!("stream {}", self.id.0), self.submitted());
        Error::out_of_range(stream, Quantity::Submission, number, Limit::AtMost(last))
    }

    /// Whether nothing was enqueued behind submission `number`, so that the stream is idle once it is complete.
    pub(crate) fn ends_with(&self, number: u64) -> bool {
        self.submitted() == number
            && self.held_back.load(Ordering::Acquire) != number
            && !self.is_foreign()
            && self.owner.is_none()
    }

    /// Makes later work of `consumer` wait until submission `number` of this stream is complete.
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
        consumer.held_back.store(consumer.submitted(), Ordering::Release);
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
            self.check_submitted(number)?;
            let covered = self.submitted();
            // SAFETY: the caller holds the stream, which owns the event.
            unsafe { primary.api.event_record(event, self.raw) }
                .map_err(|failed| primary.error(failed))?;
            recorded.number = covered;
        }
        Ok(event)
    }

    /// The stream's event, if it was recorded behind submission `number`.
    pub(crate) fn recorded_after(&self, number: u64) -> Option<EventHandle> {
        let recorded = self.event.lock();
        recorded.event.filter(|_| recorded.number >= number)
    }

    /// Raises the number that was reported last. Returns whether it grew. Called by the completion thread alone.
    pub(crate) fn raise_reported(&self, number: u64) -> bool {
        let grew = self.reported.load(Ordering::Relaxed) < number;
        if grew {
            self.reported.store(number, Ordering::Relaxed);
        }
        grew
    }
}

impl Drop for DriverStream {
    fn drop(&mut self) {
        let mut events: Vec<_> = self.reports.events().take().collect();
        events.extend(self.event.get_mut().event);
        let owner = self.owner.take();
        self.reclaim.put(Box::new(RetiredStream { stream: self.raw, events, owner }));
    }
}

/// The handles of a stream that was dropped.
struct RetiredStream {
    stream: StreamHandle,
    events: Vec<EventHandle>,
    owner: Option<ForeignOwner>,
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
            if self.owner.is_none() {
                _ = primary.api.stream_destroy(self.stream);
            }
            for event in self.events {
                _ = primary.api.event_destroy(event);
            }
        }
        drop(self.owner);
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn number_beyond_the_last_submission_is_an_error() {
        let stream = DriverStream::without_driver(7);
        stream.set_submitted(3);
        assert_eq!(stream.check_submitted(3), Ok(()));
        let error = stream.check_submitted(4).unwrap_err().to_string();
        assert_eq!(error, "stream 7: the submission is 4 and must be at most 3; submit it first");
    }
}
