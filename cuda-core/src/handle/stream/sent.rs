//! The submissions that one handle of a stream has made, so that an op waits for its own work and reports its own
//! failures, not those of other tasks on the stream.
//!
//! # Which thread may touch which field
//! A submission writes `first` and `last` under the stream's order lock. A report of a failure also writes `first`,
//! without that lock. Consecutive numbers extend the run `first..=last`. If another handle submitted in between, the
//! run moves to `more` and a new one begins. A failure is reported once. The report clears the runs, so an op that
//! handled an error does not see it again.

use super::stream::Stream;
use crate::{
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
            let complete = joined.timeline().progress.completed() >= joined.last().number;
            if complete && failed.is_none() {
                *failed = joined.sent.failure(joined).err();
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
        let failed = failed
            .or_else(|| more.joined.iter().find_map(|joined| joined.sent.failure(joined).err()));
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
            more.joined.iter().try_for_each(|joined| joined.sent.failure(joined))?;
        }
        Ok(())
    }
}
