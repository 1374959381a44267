//! A stream of the driver: its numbers and its events, queries of its status, and foreign calls on it.
//!
//! # Which thread may touch which field
//! - `submitted` is stored by the thread that submits, after the driver took the submission. A reader that sees a
//!   number may rely on it: everything up to it is in the driver's stream.
//! - `event` is created and recorded under its lock. Its number is `submitted`, read before the recording, so the
//!   recording covers at least that number. If another thread records again before a wait, the wait covers more.
//! - `foreign` changes only while no checkpoint can be enqueued and `foreign_state` is locked.
//! - `window` is locked while submissions of a window are held or passed to the driver. No thread locks two of them.
//!   `is_windowed` is stored under the lock, and can be read without it by the thread that submits.
//! - `held_back` is stored before a wait for another stream is enqueued.

use std::sync::Arc;

use cuda_core::{
    internals::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
        spin_loop,
    },
    protocol::{Error, ForeignOwner, Limit, Quantity, Result, StreamId},
};

use super::reports::{CheckpointEvents, Reports};
use crate::{
    context::{Bound, Primary, ReclaimQueue, Reclaimable},
    driver::{
        api::{EventHandle, StreamHandle},
        status::{self, Failed},
    },
    windows::{CacheMemory, HeldFree, Window},
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
    foreign: AtomicBool,
    foreign_state: Mutex<ForeignState>,
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
            None => *recorded.event.insert(primary.new_event(bound)?),
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

/// The number of queries that a blocking thread makes before it synchronizes. They take about 7 ms. A synchronize also
/// keeps the core busy, and returns later: by 0.2 us after a wait of 10 us, by up to 12 us after one of a millisecond.
/// After 7 ms that is less than 0.2 percent, and a synchronize leaves the driver's lock to other threads.
const QUERIES: usize = 4096;

/// After this number of queries, the pause between two queries grows by one spin-loop hint. A query takes a lock of the
/// driver, so a long wait leaves the lock to other threads most of the time. A pause delays the caller by its own
/// length at most: about one percent of the wait so far after 10 us, and less after longer ones.
const PER_HINT: usize = 64;

/// Queries of the status.
impl DriverStream {
    /// Whether a query shows that the stream is idle. It is not queried during a foreign call.
    ///
    /// # Errors
    /// The error that lost the device.
    #[inline]
    pub(crate) fn is_idle(&self, primary: &Primary, _: &Bound) -> Result<bool> {
        // SAFETY: the caller holds the stream (rule 3).
        let query = || unsafe { primary.api.stream_query(self.raw) };
        self.unless_foreign(query).map_or(Ok(false), |status| is_ready(status, primary))
    }

    /// Queries the stream until it is idle, for about 7 ms at most, and only while `number` is its last submission.
    #[inline]
    pub(crate) fn is_soon_idle(
        &self,
        number: u64,
        primary: &Primary,
        bound: &Bound,
    ) -> Result<bool> {
        for query in 0..QUERIES {
            if self.is_idle(primary, bound)? {
                return Ok(true);
            }
            if self.submitted() != number {
                return Ok(self.completed() >= number);
            }
            (0..=query / PER_HINT).for_each(|_| spin_loop());
        }
        Ok(false)
    }

    /// Queries an event of the stream. Returns whether the stream has passed the event's last recording.
    ///
    /// # Errors
    /// The error that lost the device.
    pub(crate) fn has_passed(&self, event: EventHandle, primary: &Primary) -> Result<bool> {
        // SAFETY: the caller holds the stream, which owns the event (rules 3 and 5).
        is_ready(unsafe { primary.api.event_query(event) }, primary)
    }

    /// Synchronizes with the frees of this stream if everything on it has run, so that a trim of their pool returns
    /// their memory: after a query alone the driver does not know of them. Never waits for the device. Does nothing
    /// during a foreign call, and ignores errors, which later calls meet again.
    #[cold]
    pub(crate) fn settle_frees(&self, primary: &Primary, bound: &Bound) {
        let Ok(event) = primary.new_event(bound) else { return };
        // SAFETY: the caller holds the stream, and the event is owned here.
        let record = || unsafe { primary.api.event_record(event, self.raw) }.is_ok();
        if self.unless_foreign(record) == Some(true)
            // SAFETY: the event is owned here.
            && unsafe { primary.api.event_query(event) }.is_ok()
        {
            // The event was reached, so this returns at once.
            // SAFETY: the event is owned here.
            _ = unsafe { primary.api.event_synchronize(event) };
        }
        // SAFETY: the event is owned here. The driver destroys it when it was reached.
        _ = unsafe { primary.api.event_destroy(event) };
    }
}

#[inline]
fn is_ready(status: Result<(), Failed>, primary: &Primary) -> Result<bool> {
    match status {
        Ok(()) => Ok(true),
        Err(Failed { code: status::NOT_READY, .. }) => Ok(false),
        Err(failed) => {
            let error = primary.state_error(failed);
            if primary.is_lost() { Err(error) } else { Ok(false) }
        }
    }
}

/// Foreign calls: foreign code enqueues on the stream, and may capture it meanwhile.
///
/// # Rules
/// - A capture lasts at most as long as the foreign call that begins it. The caller of the foreign code promises that.
/// - During a foreign call this library neither queries the stream, which would end a capture, nor enqueues on it,
///   which the capture would include. The client holds the order lock during the foreign call, so it submits nothing
///   else. Frees are held here. Queries and frees take the lock of [`ForeignState`] for their driver calls.
/// - Before the call, the stream's event is recorded behind everything that was submitted. So other streams, blocked
///   threads and the completion thread have an event to rely on, and need not record one.
impl DriverStream {
    /// Keeps a foreign call from beginning while the guard lives. The caller may enqueue a free meanwhile.
    pub(crate) fn foreign_state(&self) -> MutexGuard<'_, ForeignState> {
        self.foreign_state.lock()
    }

    /// Makes a driver call during which no foreign call begins. Returns nothing if one runs.
    #[inline]
    fn unless_foreign<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let state = self.foreign_state.lock();
        (!state.active).then(call)
    }

    /// Whether foreign code may be enqueuing on the stream now.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire)
    }

    /// A foreign call begins. The caller has recorded the stream's event behind everything that was submitted.
    /// `enqueue` makes an entry for a report that a thread wanted in this moment.
    pub(crate) fn begin_foreign(&self, enqueue: impl Fn(u64, &mut CheckpointEvents) -> bool) {
        self.set_foreign(true);
        self.reports.enqueue_due(|| self.submitted(), enqueue);
    }

    /// The foreign call has ended. `renew` enqueues the checkpoint that was held back, if there is one, and `enqueue`
    /// those that are due. Returns the frees that were held.
    #[must_use = "the memory is freed by the caller"]
    pub(crate) fn end_foreign(
        &self,
        renew: impl Fn(u64, &mut CheckpointEvents) -> bool,
        enqueue: impl Fn(u64, &mut CheckpointEvents) -> bool,
    ) -> Vec<HeldFree> {
        let held = self.set_foreign(false);
        self.reports.renew(|| self.submitted(), renew);
        self.reports.enqueue_due(|| self.submitted(), enqueue);
        held
    }

    fn set_foreign(&self, active: bool) -> Vec<HeldFree> {
        let held = self.reports.without_checkpoints(|| {
            let mut state = self.foreign_state.lock();
            state.active = active;
            self.foreign.store(active, Ordering::Release);
            std::mem::take(&mut state.held)
        });
        // Orders the unlock before the next check of the reports that are wanted.
        fence(Ordering::SeqCst);
        held
    }
}

impl Drop for DriverStream {
    fn drop(&mut self) {
        let mut events: Vec<_> = self.reports.take_events().collect();
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

/// Whether a foreign call runs, and the frees that wait for its end.
#[derive(Default)]
pub(crate) struct ForeignState {
    active: bool,
    held: Vec<HeldFree>,
}

impl ForeignState {
    /// Holds a free if a foreign call runs. Otherwise returns it, and the caller enqueues it while it has the lock.
    pub(crate) fn hold(&mut self, free: HeldFree) -> Option<HeldFree> {
        if !self.active {
            return Some(free);
        }
        self.held.push(free);
        None
    }
}

/// The number up to which a stream is known to be complete. It only grows. The completion thread or a host function
/// raises it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passed(Arc<AtomicU64>);

impl Passed {
    /// The largest number that was stored. The effects of the submissions up to it are visible to the calling thread.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Raises the number to `number`, unless it is larger already.
    pub(crate) fn raise(&self, number: u64) {
        self.0.fetch_max(number, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use cuda_core::protocol::AllocId;

    #[test]
    fn number_beyond_the_last_submission_is_an_error() {
        let stream = DriverStream::without_driver(7);
        stream.set_submitted(3);
        assert_eq!(stream.check_submitted(3), Ok(()));
        let error = stream.check_submitted(4).unwrap_err().to_string();
        assert_eq!(error, "stream 7: the submission is 4 and must be at most 3; submit it first");
    }

    #[test]
    fn no_checkpoint_is_enqueued_during_a_foreign_call() {
        let stream = DriverStream::without_driver(7);
        let checkpoints = RefCell::new(Vec::new());
        let enqueue = |number, _: &mut CheckpointEvents| {
            let takes = !stream.is_foreign();
            checkpoints.borrow_mut().push((number, takes));
            takes
        };
        stream.set_submitted(1);
        stream.begin_foreign(enqueue);
        stream.reports.want(1, || stream.submitted(), enqueue);
        assert!(stream.reports.covers(1) && stream.reports.enqueued() < 1);
        stream.set_submitted(2);
        drop(stream.end_foreign(enqueue, enqueue));
        assert!(stream.reports.covers(2) && stream.reports.enqueued() == 2);
        assert_eq!(*checkpoints.borrow(), [(1, false), (2, true)]);
    }

    #[test]
    fn frees_and_queries_are_held_back_during_a_foreign_call() {
        let stream = DriverStream::without_driver(7);
        let free = |id| HeldFree { id: AllocId(id), after: Vec::new() };
        assert!(stream.foreign_state().hold(free(1)).is_some());
        assert_eq!(stream.unless_foreign(|| 1), Some(1));
        stream.begin_foreign(|_, _| true);
        assert!(stream.foreign_state().hold(free(2)).is_none());
        assert_eq!(stream.unless_foreign(|| 1), None);
        let held = stream.end_foreign(|_, _| true, |_, _| true);
        assert_eq!(held.iter().map(|free| free.id).collect::<Vec<_>>(), [AllocId(2)]);
        assert_eq!(stream.unless_foreign(|| 1), Some(1));
    }
}
