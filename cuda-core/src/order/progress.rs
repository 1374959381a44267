//! Progress of a stream, and the tasks that wait for it.
//!
//! # Which thread may touch which field
//! `completed` only grows. The thread that reports progress (a completion thread, or a thread that synchronized) raises
//! `completed` *before* it loads `waiters`. A waiter increments `waiters` *before* it loads `completed` again. These
//! four accesses are sequentially consistent: either the reporting thread sees the waiter, or the waiter sees the
//! progress. So no wake is lost. Wakers are stored under the lock; they are cloned, dropped and woken without it. A
//! failure is stored before `completed` covers it.
//!
//! # Inferred completion
//! If a submission came after a ticket of another stream and is
//! complete, that ticket is complete too. Without this, a joined stream would count as busy until its own report.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use crate::{
    order::timeline::Timeline,
    protocol::{Error, Result},
    sync::{
        Mutex, WakerSet, Woken,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        limit,
    },
};

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

#[cfg(all(test, not(loom)))]
mod tests {
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
