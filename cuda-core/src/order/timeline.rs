//! The timeline of a stream: its numbers, its progress with the tasks that wait for it, its edges to other streams, and
//! the resources that it retains until the submissions that use them are complete.
//!
//! # Which thread may touch which field
//! - `order` is held across the check, the backend call and the publication of one submission. No thread holds the
//!   `order` of two streams: an edge needs only the producer's `published`.
//! - `reserved` is stored under `order` before the backend takes a submission, so that a report may come at once;
//!   `published` is stored after it. Reports are clamped to `reserved`: a wrong report completes no submission that was
//!   never made.
//! - A submission claims its histories before it is published. Another stream can see such a claim only if it is a
//!   read: the handle of a writer has exclusive access, and replays of recordings take turns with all others (see
//!   `handle::stream::submit`). The other stream restores that claim instead of waiting for it.
//! - A thread that reports progress takes no `order`.
//!
//! # Progress
//! `completed` only grows. The thread that reports progress (a completion thread, or a thread that synchronized) raises
//! `completed` *before* it loads `waiters`. A waiter increments `waiters` *before* it loads `completed` again. These
//! four accesses are sequentially consistent: either the reporting thread sees the waiter, or the waiter sees the
//! progress. So no wake is lost. Wakers are stored under the lock; they are cloned, dropped and woken without it. A
//! failure is stored before `completed` covers it.
//!
//! # Inferred completion
//! If a submission came after a ticket of another stream and is complete, that ticket is complete too. Without this, a
//! joined stream would count as busy until its own report.

use std::{
    any::Any,
    collections::VecDeque,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use rustc_hash::FxHashMap;

use crate::{
    protocol::{Error, Result, StreamId, Ticket},
    sync::{
        Mutex, WakerSet, Woken,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
        limit,
    },
};

/// The numbers, the progress and the resources of one stream, in the client.
pub(crate) struct Timeline {
    pub(crate) id: StreamId,
    pub(crate) priority: i32,
    /// See [`Capabilities::ordered_visibility`](crate::protocol::Capabilities::ordered_visibility).
    ordered_visibility: bool,
    reserved: AtomicU64,
    published: AtomicU64,
    /// The last number for which [`take_due_report`](Self::take_due_report) returned true.
    asked: AtomicU64,
    /// The last number that a task will wait for and for which no report was requested yet; 0 if there is none. Stored
    /// under `order`.
    awaited: AtomicU64,
    pub(crate) progress: Progress,
    pub(crate) order: Mutex<Watermarks>,
    pub(crate) retention: Retention,
    pub(crate) inferred: InferredCompletion,
}

/// A report is requested after this many submissions, if no caller waits.
const REPORT_EVERY: u64 = 256;

impl Timeline {
    pub(crate) fn new(id: StreamId, priority: i32, ordered_visibility: bool) -> Arc<Self> {
        Arc::new(Self {
            id,
            priority,
            ordered_visibility,
            reserved: AtomicU64::new(0),
            published: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            progress: Progress::default(),
            order: Mutex::default(),
            retention: Retention::default(),
            inferred: InferredCompletion::default(),
        })
    }

    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// The number of the next submission, which the backend may report from now on. Called with `order` held.
    #[inline]
    pub(crate) fn reserve(&self) -> Ticket {
        let number = self.published.load(Ordering::Relaxed) + 1;
        self.reserved.store(number, Ordering::Release);
        Ticket { stream: self.id, number }
    }

    /// Takes back the number of a refused submission, which the next one uses again. Called with `order` held.
    #[cold]
    pub(crate) fn give_back(&self, ticket: Ticket) {
        self.reserved.store(ticket.number - 1, Ordering::Release);
    }

    /// Records that the backend took the submission. Called with `order` held.
    #[inline]
    pub(crate) fn publish(&self, number: u64) {
        self.published.store(number, Ordering::Release);
    }

    /// Submissions that are not known to be complete.
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        self.published().saturating_sub(self.progress.completed())
    }

    /// Returns whether a report is due, which the caller then requests: [`REPORT_EVERY`] submissions were made since
    /// the last request or known completion. So a task that waits for credit gets it before everything is complete.
    /// Called with `order` held.
    #[inline]
    pub(crate) fn take_due_report(&self, number: u64) -> bool {
        let known = self.asked.load(Ordering::Relaxed).max(self.progress.completed());
        let due = number.saturating_sub(known) >= REPORT_EVERY;
        if due {
            self.asked.store(number, Ordering::Relaxed);
        }
        due
    }

    /// Records that a task will wait for this submission. Called with `order` held.
    #[inline]
    pub(crate) fn set_awaited(&self, number: u64) {
        self.awaited.store(number, Ordering::Relaxed);
    }

    /// Takes the submission that a task will wait for, if it is not known to be complete. The caller requests its
    /// report. Called with `order` held.
    #[inline]
    pub(crate) fn take_awaited(&self) -> Option<u64> {
        let number = self.awaited.load(Ordering::Relaxed);
        if number <= self.progress.completed() {
            return None;
        }
        self.awaited.store(0, Ordering::Relaxed);
        Some(number)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight() > 0 && self.progress.ended().is_none()
    }

    /// Records that everything up to `number` is complete and that the bytes of its downloads are visible. Wakes
    /// waiters and releases resources. Does the same for other streams, as far as their completion follows through
    /// edges.
    #[inline]
    pub(crate) fn advance(&self, number: u64) {
        let number = number.min(self.reserved.load(Ordering::Acquire).max(self.published()));
        self.retention.release(number);
        let has_waiters = self.progress.raise(number);
        // A resource may have come between the two lines above: see `retain_until`.
        self.retention.release(number);
        if has_waiters || !self.inferred.is_empty() {
            self.propagate_completion(number);
        }
    }

    /// Retains a resource until an earlier submission is complete. Returns whether many resources wait, so that a
    /// report is due. The submission may complete meanwhile. Then either the thread that raises the progress finds the
    /// resource, or this one finds the progress and releases it.
    pub(crate) fn retain_until(&self, number: u64, resource: Arc<dyn Retain>) -> bool {
        let is_report_due = self.retention.keep(number, Until::Complete, resource);
        // Orders the store of the resource before the load of the progress. The other thread stores the progress, and
        // then looks for resources, both `SeqCst`.
        fence(Ordering::SeqCst);
        self.release_complete(number);
        is_report_due
    }

    /// Releases the resources of submissions that are known to be complete. Returns whether submission `number` is.
    pub(crate) fn release_complete(&self, number: u64) -> bool {
        let completed = self.progress.completed();
        self.retention.release(completed);
        completed >= number
    }

    /// Releases the host memory that uploads up to `number` read: it may change again.
    pub(crate) fn accept(&self, number: u64) {
        self.retention.release_accepted(number.min(self.reserved.load(Ordering::Acquire)));
    }

    /// Advances the streams that submissions up to `number` came after, then wakes the tasks that wait for submissions
    /// up to `number`.
    #[cold]
    fn propagate_completion(&self, number: u64) {
        let woken = self.progress.take_up_to(number);
        self.advance_others(number);
        // The drop wakes the tasks.
        drop(woken);
    }

    fn advance_others(&self, number: u64) {
        let mut known = Vec::new();
        self.inferred.take_up_to(number, &mut known);
        while let Some((other, number)) = known.pop() {
            if other.progress.completed() >= number {
                continue;
            }
            if self.ordered_visibility {
                other.retention.release(number);
            } else if !other.retention.is_empty() {
                // The host bytes of the other stream's downloads may not be visible before its own report.
                continue;
            }
            let woken = other.progress.advance(number);
            if self.ordered_visibility {
                // As in `advance`.
                other.retention.release(number);
            }
            other.inferred.take_up_to(number, &mut known);
            // The drop wakes the tasks.
            drop(woken);
        }
    }
}

impl HasProgress for Timeline {
    fn progress(&self) -> &Progress {
        &self.progress
    }
}

/// The number of other streams whose watermarks a stream stores. A lost watermark costs one unnecessary wait.
const MAX_WATERMARKS: usize = 64;

/// For each other stream, the number up to which this one is ordered after it.
#[derive(Default)]
pub(crate) struct Watermarks(FxHashMap<StreamId, u64>);

impl Watermarks {
    pub(crate) fn covers(&self, ticket: Ticket) -> bool {
        self.0.get(&ticket.stream).is_some_and(|number| *number >= ticket.number)
    }

    pub(crate) fn raise(&mut self, ticket: Ticket) {
        if self.0.len() >= MAX_WATERMARKS {
            self.0.clear();
        }
        let number = self.0.entry(ticket.stream).or_default();
        *number = (*number).max(ticket.number);
    }
}

/// The progress of a stream.
#[derive(Default)]
pub(crate) struct Progress {
    completed: AtomicU64,
    /// Whether `state.failed` is not empty. Readable without the lock.
    lossy: AtomicBool,
    /// Whether `state.ended` is set. Readable without the lock.
    ended: AtomicBool,
    /// The number of wakers in `state`. Raised under the lock after the insertion. While it is 0, progress takes no
    /// lock.
    waiters: AtomicU64,
    next_waiter: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The error that ended the stream: submissions that are not complete now never will be.
    ended: Option<Error>,
    /// Submissions that failed or were skipped: first, last, cause. Sorted; no two overlap.
    failed: VecDeque<(u64, u64, Error)>,
    /// By submission number, then by waiter.
    wakers: WakerSet<(u64, u64)>,
}

/// The number of separate ranges of failed submissions that a stream stores, about 400 KiB. Beyond it the two oldest
/// ranges are merged, including the submissions between them. An operation that was in flight all that time may then
/// report the failure of another one. No failure is lost.
const MAX_FAILED: usize = limit(4096, 64);

impl Progress {
    /// The last submission that is known to be complete.
    #[inline]
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::SeqCst)
    }

    /// Whether everything up to `until` is known to be complete, and no submission of the stream ever failed.
    #[inline]
    pub(crate) fn is_flawless(&self, until: u64) -> bool {
        self.completed() >= until && !self.lossy.load(Ordering::Acquire)
    }

    /// The result of submission `number`, if it is known.
    #[inline]
    pub(crate) fn outcome(&self, number: u64) -> Option<Result<()>> {
        self.outcome_of(number, number, number)
    }

    /// The first failure among the submissions `first..=last`, or success. `None` if submission `until` is not known to
    /// be complete. The range may be empty.
    #[inline]
    pub(crate) fn outcome_of(&self, first: u64, last: u64, until: u64) -> Option<Result<()>> {
        if self.completed() >= until {
            if !self.lossy.load(Ordering::Acquire) {
                return Some(Ok(()));
            }
            return Some(self.state.lock().failure_in(first, last));
        }
        if self.ended.load(Ordering::Acquire) { self.end(first, last, until) } else { None }
    }

    #[cold]
    fn end(&self, first: u64, last: u64, until: u64) -> Option<Result<()>> {
        let state = self.state.lock();
        match state.failure_in(first, last) {
            Err(error) => Some(Err(error)),
            Ok(()) if self.completed() >= until => Some(Ok(())),
            Ok(()) => state.ended.clone().map(Err),
        }
    }

    /// The first failure among these submissions, without regard to whether they are complete.
    pub(crate) fn failure_in(&self, first: u64, last: u64) -> Result<()> {
        if !self.lossy.load(Ordering::Acquire) {
            return Ok(());
        }
        self.state.lock().failure_in(first, last)
    }

    /// The error that ended this stream.
    pub(crate) fn ended(&self) -> Option<Error> {
        if !self.ended.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().ended.clone()
    }

    /// Records that every submission up to `number` has run or was skipped. Returns the wakers of the waiters it
    /// covers.
    pub(crate) fn advance(&self, number: u64) -> Woken {
        if self.raise(number) { self.take_up_to(number) } else { Woken::default() }
    }

    /// As [`advance`](Self::advance), but wakes no task. Returns whether any waits; then the caller
    /// [takes](Self::take_up_to) the wakers that `number` covers.
    #[inline]
    pub(crate) fn raise(&self, number: u64) -> bool {
        // Most calls come from the one thread that uses the stream: a plain load avoids the read-modify-write.
        if self.completed.load(Ordering::Relaxed) < number {
            self.completed.fetch_max(number, Ordering::SeqCst);
        }
        self.waiters.load(Ordering::SeqCst) != 0
    }

    /// Records that submission `number` failed or was skipped. Called before the progress that covers it.
    #[cold]
    pub(crate) fn fail(&self, number: u64, error: Error) {
        let mut state = self.state.lock();
        state.add_failure(number, error);
        self.lossy.store(true, Ordering::Release);
    }

    /// Ends the stream: submissions that are not complete now fail with `error`. Called when the device is lost.
    #[cold]
    pub(crate) fn fail_all(&self, error: Error) -> Woken {
        let mut state = self.state.lock();
        state.ended.get_or_insert(error);
        self.ended.store(true, Ordering::SeqCst);
        let woken = state.wakers.take_all();
        self.waiters.fetch_sub(woken.len() as u64, Ordering::SeqCst);
        woken
    }

    /// Takes out the wakers of the tasks that wait for a submission up to `number`.
    pub(crate) fn take_up_to(&self, number: u64) -> Woken {
        let mut state = self.state.lock();
        let woken = state.wakers.take_below(&(number.saturating_add(1), 0));
        self.waiters.fetch_sub(woken.len() as u64, Ordering::SeqCst);
        woken
    }

    /// Whether no task waits.
    #[cfg(all(test, loom))]
    pub(crate) fn has_no_waiters(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) == 0 && self.state.lock().wakers.is_empty()
    }

    fn new_waiter(&self) -> u64 {
        self.next_waiter.fetch_add(1, Ordering::Relaxed)
    }
}

impl State {
    fn failure_in(&self, first: u64, last: u64) -> Result<()> {
        let place = self.failed.partition_point(|(_, to, _)| *to < first);
        let hit = self.failed.get(place).filter(|(from, ..)| first <= last && *from <= last);
        hit.map_or(Ok(()), |(.., error)| Err(error.clone()))
    }

    fn add_failure(&mut self, number: u64, error: Error) {
        if let Some((_, last, known)) = self.failed.back_mut()
            && *last + 1 == number
            && *known == error
        {
            *last = number;
            return;
        }
        let place = self.failed.partition_point(|(_, last, _)| *last < number);
        if self.failed.get(place).is_some_and(|(first, ..)| *first <= number) {
            return;
        }
        self.failed.insert(place, (number, number, error));
        if self.failed.len() > MAX_FAILED
            && let Some((first, ..)) = self.failed.pop_front()
        {
            self.failed[0].0 = first;
        }
    }
}

/// A waiter for the completion of one submission. Dropping it removes its waker.
pub struct Waiter {
    progress: Arc<dyn HasProgress>,
    key: (u64, u64),
    registered: bool,
}

/// An owner of a [`Progress`], so that a waiter needs no allocation of its own.
pub(crate) trait HasProgress: Send + Sync {
    fn progress(&self) -> &Progress;
}

impl HasProgress for Progress {
    fn progress(&self) -> &Progress {
        self
    }
}

impl Waiter {
    pub(crate) fn new(progress: Arc<dyn HasProgress>, number: u64) -> Self {
        let key = (number, progress.progress().new_waiter());
        Self { progress, key, registered: false }
    }

    /// Polls for the result of the submission. It is ready when the submission has run, was skipped, or will never run.
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<()>> {
        let progress = self.progress.progress();
        if let Some(outcome) = progress.outcome(self.key.0) {
            // The reporting thread takes the registered waker, so it need not be removed here.
            self.registered = false;
            return Poll::Ready(outcome);
        }
        let waker = task.waker().clone();
        let previous = {
            let mut state = progress.state.lock();
            let previous = state.wakers.insert(self.key, waker);
            if previous.is_none() {
                progress.waiters.fetch_add(1, Ordering::SeqCst);
            }
            previous
        };
        self.registered = true;
        drop(previous);
        // Checked again, because progress may have come in between. A later report sees this waiter.
        let outcome = progress.outcome(self.key.0);
        if outcome.is_some() {
            self.unregister();
        }
        outcome.map_or(Poll::Pending, Poll::Ready)
    }

    /// Removes the waker, if a report has not taken it.
    fn unregister(&mut self) {
        if std::mem::take(&mut self.registered) {
            let progress = self.progress.progress();
            let waker = {
                let mut state = progress.state.lock();
                let waker = state.wakers.remove(&self.key);
                if waker.is_some() {
                    progress.waiters.fetch_sub(1, Ordering::SeqCst);
                }
                waker
            };
            drop(waker);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.unregister();
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiter(submission {})", self.key.0)
    }
}

/// The number of edges that a stream stores. A lost edge costs one unnecessary report.
const MAX_EDGES: usize = 64;

/// The edges of a stream to the streams that its submissions came after.
#[derive(Default)]
pub(crate) struct InferredCompletion {
    edges: Mutex<VecDeque<Edge>>,
    /// The number of edges, readable without the lock. Stored under the lock.
    count: AtomicUsize,
}

/// An edge: when the stream has completed its submission `own`, the other stream has completed submission `number`.
struct Edge {
    own: u64,
    /// Not held: a stream that is gone has run everything.
    other: Weak<Timeline>,
    number: u64,
}

impl InferredCompletion {
    /// Records that submission `own` comes after submission `number` of `other`.
    pub(crate) fn note(&self, own: u64, other: &Arc<Timeline>, number: u64) {
        let mut edges = self.edges.lock();
        if edges.len() >= MAX_EDGES {
            edges.pop_front();
        }
        edges.push_back(Edge { own, other: Arc::downgrade(other), number });
        self.count.store(edges.len(), Ordering::Release);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Takes the edges of submissions up to `own`. Adds to `known` the streams and numbers that are complete because of
    /// them.
    pub(super) fn take_up_to(&self, own: u64, known: &mut Vec<(Arc<Timeline>, u64)>) {
        if self.is_empty() {
            return;
        }
        let mut edges = self.edges.lock();
        let due = edges.partition_point(|edge| edge.own <= own);
        for edge in edges.drain(..due) {
            known.extend(edge.other.upgrade().map(|other| (other, edge.number)));
        }
        self.count.store(edges.len(), Ordering::Release);
    }
}

/// The number of resources that a stream retains before it requests a report of its progress.
pub const MAX_RETAINED: usize = 64;

/// The number of bytes that a stream retains before it requests a report of its progress.
pub const MAX_RETAINED_BYTES: usize = 64 << 20;

/// A resource that submissions use, such as a block of host memory or memory of another device.
pub trait Retain: Any + Send + Sync {
    /// Returns the bytes of host memory that the resource holds.
    fn host_bytes(&self) -> usize {
        0
    }
}

/// The end of a submission's need for a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until the backend has taken the bytes: the source of an upload.
    Accepted,
    /// Until the submission has run.
    Complete,
}

/// The resources that a stream retains.
#[derive(Default)]
pub(crate) struct Retention {
    held: Mutex<Held>,
    /// The number of resources. Readable without the lock. Stored under the lock.
    count: AtomicUsize,
    /// The host memory of the resources, in bytes. As `count`.
    bytes: AtomicUsize,
}

#[derive(Default)]
struct Held {
    bytes: usize,
    /// The resources, each with the submission that uses it; the oldest first.
    queue: VecDeque<Entry>,
    /// The number of resources that were retained since the last request for a report, or since the queue was last
    /// empty.
    unasked: usize,
    unasked_bytes: usize,
}

struct Entry {
    last_use: u64,
    until: Until,
    /// The host memory that the resource stated when it was retained.
    bytes: usize,
    resource: Arc<dyn Retain>,
}

impl Held {
    #[cold]
    fn insert(&mut self, entry: Entry) {
        let place = self.queue.partition_point(|other| other.last_use <= entry.last_use);
        self.queue.insert(place, entry);
    }

    /// Subtracts the host memory of entries that were removed from the queue.
    fn subtract(&mut self, released: &[Entry]) {
        self.bytes -= released.iter().map(|entry| entry.bytes).sum::<usize>();
    }
}

impl Retention {
    /// Retains a resource for a submission, which may be an earlier one. Returns whether it is time to ask for a report
    /// of the stream's progress.
    pub(crate) fn keep(&self, last_use: u64, until: Until, resource: Arc<dyn Retain>) -> bool {
        let mut held = self.held.lock();
        let bytes = resource.host_bytes();
        held.bytes += bytes;
        held.unasked += 1;
        held.unasked_bytes += bytes;
        let entry = Entry { last_use, until, bytes, resource };
        match held.queue.back() {
            Some(last) if last.last_use > last_use => held.insert(entry),
            _ => held.queue.push_back(entry),
        }
        self.show(&held);
        let ask = held.unasked >= MAX_RETAINED || held.unasked_bytes >= MAX_RETAINED_BYTES;
        if ask {
            (held.unasked, held.unasked_bytes) = (0, 0);
        }
        ask
    }

    /// Drops the resource of a submission that was refused.
    #[cold]
    pub(crate) fn forget(&self, number: u64) {
        let mut held = self.held.lock();
        let refused = match held.queue.back() {
            Some(newest) if newest.last_use == number => held.queue.pop_back(),
            _ => None,
        };
        held.subtract(refused.as_slice());
        self.show(&held);
        drop(held);
        drop(refused);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // `SeqCst`: see `Timeline::retain_until`.
        self.count.load(Ordering::SeqCst) == 0
    }

    /// The host memory that it holds, in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// The submission after whose completion at most `bytes` bytes of host memory are retained; 0 if no more are
    /// retained now.
    pub(crate) fn leaves_at_most(&self, bytes: usize) -> u64 {
        let held = self.held.lock();
        let mut left = held.bytes;
        let mut entries = held.queue.iter();
        let mut number = 0;
        while left > bytes
            && let Some(entry) = entries.next()
        {
            left -= entry.bytes;
            number = entry.last_use;
        }
        number
    }

    /// Makes the sums readable without the lock. Called after each change, with the lock held.
    fn show(&self, held: &Held) {
        self.count.store(held.queue.len(), Ordering::Release);
        self.bytes.store(held.bytes, Ordering::Release);
    }

    /// Releases every resource whose last use is submission `number` or an earlier one.
    #[inline]
    pub(crate) fn release(&self, number: u64) {
        while !self.is_empty()
            && let Some(resource) = self.take_oldest(number)
        {
            drop(resource);
        }
    }

    /// Takes out the oldest resource, if its last use is submission `number` or an earlier one. The caller drops it
    /// after the lock is released, because the drop may run other code.
    fn take_oldest(&self, number: u64) -> Option<Arc<dyn Retain>> {
        let mut held = self.held.lock();
        let oldest = match held.queue.front() {
            Some(oldest) if oldest.last_use <= number => held.queue.pop_front()?,
            _ => return None,
        };
        held.subtract(std::slice::from_ref(&oldest));
        // With nothing retained, no report is needed.
        if held.queue.is_empty() {
            (held.unasked, held.unasked_bytes) = (0, 0);
        }
        self.show(&held);
        Some(oldest.resource)
    }

    /// Releases every resource of [`Until::Accepted`] whose last use is submission `number` or an earlier one.
    #[inline]
    pub(crate) fn release_accepted(&self, number: u64) {
        if !self.is_empty() {
            let mut held = self.held.lock();
            let due = |entry: &Entry| entry.until == Until::Accepted && entry.last_use <= number;
            let (released, kept) = held.queue.drain(..).partition::<Vec<_>, _>(due);
            held.queue = kept.into();
            held.subtract(&released);
            self.show(&held);
            drop(held);
            drop(released);
        }
    }

    /// Takes everything out, with the tickets that it was retained for.
    pub(crate) fn take(&self, stream: StreamId) -> Vec<(Ticket, Box<dyn Any + Send + Sync>)> {
        let mut held = self.held.lock();
        let all = std::mem::take(&mut *held).queue;
        self.show(&held);
        drop(held);
        let boxed = |resource| Box::new(resource) as Box<dyn Any + Send + Sync>;
        let at = |number| Ticket { stream, number };
        all.into_iter().map(|entry| (at(entry.last_use), boxed(entry.resource))).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn report_is_clamped_to_reserved_submissions() {
        let timeline = Timeline::new(StreamId(1), 0, true);
        let ticket = timeline.reserve();
        timeline.publish(ticket.number);
        let refused = timeline.reserve();
        timeline.give_back(refused);
        timeline.advance(u64::MAX);
        assert_eq!(timeline.progress.completed(), 1);
        let next = timeline.reserve();
        assert_eq!(next, refused);
        timeline.advance(u64::MAX);
        assert_eq!(timeline.progress.completed(), 2);
    }
}

#[cfg(all(test, not(loom)))]
mod progress_tests {
    use std::{
        sync::atomic::AtomicUsize,
        task::{Wake, Waker},
    };

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn waiting(progress: &Arc<Progress>, number: u64) -> (Waiter, Arc<Count>) {
        let count = Arc::new(Count::default());
        let mut waiter = Waiter::new(progress.clone(), number);
        let waker = Waker::from(count.clone());
        assert!(waiter.poll(&mut Context::from_waker(&waker)).is_pending());
        (waiter, count)
    }

    #[test]
    fn progress_wakes_only_covered_waiters() {
        let progress = Arc::new(Progress::default());
        let (_first, woken_first) = waiting(&progress, 2);
        let (mut second, woken_second) = waiting(&progress, 3);
        drop(progress.advance(2));
        assert_eq!(woken_first.0.load(Ordering::SeqCst), 1);
        assert_eq!(woken_second.0.load(Ordering::SeqCst), 0);
        drop(progress.advance(7));
        let waker = Waker::noop();
        assert_eq!(second.poll(&mut Context::from_waker(waker)), Poll::Ready(Ok(())));
    }

    #[test]
    fn dropped_waiter_leaves_nothing_behind() {
        let progress = Arc::new(Progress::default());
        let (waiter, woken) = waiting(&progress, 1);
        drop(waiter);
        drop(progress.advance(1));
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        assert_eq!(Arc::strong_count(&woken), 1);
    }

    #[test]
    fn lost_device_ends_unfinished_submissions_only() {
        let progress = Arc::new(Progress::default());
        let (mut waiter, woken) = waiting(&progress, 5);
        drop(progress.advance(4));
        drop(progress.fail_all(Error::AlreadyEnded));
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        let waker = Waker::noop();
        let outcome = waiter.poll(&mut Context::from_waker(waker));
        assert_eq!(outcome, Poll::Ready(Err(Error::AlreadyEnded)));
        assert_eq!(progress.outcome(4), Some(Ok(())));
    }

    #[test]
    fn failed_submission_keeps_its_own_error_after_later_ones_complete() {
        let progress = Arc::new(Progress::default());
        drop(progress.advance(3));
        progress.fail(5, Error::AlreadyEnded);
        assert_eq!(progress.outcome(5), None);
        drop(progress.advance(7));
        assert_eq!(progress.outcome(4), Some(Ok(())));
        assert_eq!(progress.outcome(5), Some(Err(Error::AlreadyEnded)));
        assert_eq!(progress.outcome(6), Some(Ok(())));
        assert_eq!(progress.outcome_of(4, 7, 7), Some(Err(Error::AlreadyEnded)));
        assert_eq!(progress.outcome_of(6, 7, 7), Some(Ok(())));
    }

    #[test]
    fn failures_are_bounded_and_none_is_lost() {
        let progress = Progress::default();
        let count = MAX_FAILED as u64 + 36;
        for number in 1..=count {
            progress.fail(2 * number, Error::AlreadyEnded);
            drop(progress.advance(2 * number));
        }
        let failed = |number| progress.outcome(number) == Some(Err(Error::AlreadyEnded));
        assert!((1..=count).all(|number| failed(2 * number)));
        assert_eq!(progress.state.lock().failed.len(), MAX_FAILED);
        // The oldest became one range. The others are apart.
        assert!(failed(3) && !failed(2 * count - 1) && !failed(1) && !failed(2 * count + 1));
    }

    #[test]
    fn panicking_waker_does_not_prevent_other_wakes() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("on purpose");
            }
        }
        let progress = Arc::new(Progress::default());
        let mut first = Waiter::new(progress.clone(), 1);
        let waker = Waker::from(Arc::new(Panics));
        assert!(first.poll(&mut Context::from_waker(&waker)).is_pending());
        let (_second, woken) = waiting(&progress, 1);
        drop(progress.advance(1));
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    }
}

#[cfg(all(test, not(loom)))]
mod inferred_completion_tests {
    use super::*;
    use crate::protocol::StreamId;

    fn timeline(id: u64, published: u64) -> Arc<Timeline> {
        let timeline = Timeline::new(StreamId(id), 0, true);
        timeline.publish(published);
        timeline
    }

    #[test]
    fn completion_follows_edges_transitively() {
        let (a, b, c) = (timeline(1, 9), timeline(2, 9), timeline(3, 9));
        b.inferred.note(4, &c, 7);
        a.inferred.note(2, &b, 5);
        a.inferred.note(6, &c, 9);
        a.advance(1);
        assert_eq!((b.progress.completed(), c.progress.completed()), (0, 0));
        a.advance(3);
        assert_eq!((b.progress.completed(), c.progress.completed()), (5, 7));
        a.advance(6);
        assert_eq!((b.progress.completed(), c.progress.completed()), (5, 9));
    }

    #[test]
    fn edges_are_bounded_and_cycles_terminate() {
        let (a, b) = (timeline(1, 9999), timeline(2, 9999));
        for number in 1..1000 {
            a.inferred.note(number, &b, number);
            b.inferred.note(number, &a, number);
        }
        assert!(a.inferred.edges.lock().len() <= MAX_EDGES);
        a.advance(1000);
        assert_eq!(b.progress.completed(), 999);
        drop(b);
        a.advance(1001);
    }
}

#[cfg(all(test, not(loom)))]
mod retention_tests {
    use super::*;

    struct Resource;
    impl Retain for Resource {}

    #[test]
    fn resources_are_released_in_the_order_of_their_last_uses() {
        let (retention, all) = (Retention::default(), [(); 4].map(|()| Arc::new(Resource)));
        let retained = || all.each_ref().map(|resource| Arc::strong_count(resource) - 1);
        for at in [2, 0, 3, 1] {
            retention.keep(at as u64 + 1, Until::Complete, all[at].clone());
        }
        let expected = [[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]];
        for (number, expected) in expected.into_iter().enumerate() {
            retention.release(number as u64);
            assert_eq!(retained(), expected, "after {number}");
        }
    }

    #[test]
    fn report_is_due_when_many_resources_are_retained() {
        let retention = Retention::default();
        let mut keep = |number| retention.keep(number, Until::Complete, Arc::new(Resource));
        let due: Vec<_> = (1..=MAX_RETAINED as u64).map(&mut keep).collect();
        assert_eq!(due.iter().position(|due| *due), Some(MAX_RETAINED - 1));
        // Without any, the count begins again.
        retention.release(1000);
        assert!((1..MAX_RETAINED as u64).all(|number| !keep(number)));
        retention.release(1000);
        assert!((1..MAX_RETAINED as u64).all(|number| !keep(number)));
    }
}
