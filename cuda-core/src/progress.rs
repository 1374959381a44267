//! How far a stream is, and who waits for it to get further.
//!
//! # Who may touch what
//! `completed` only grows; it is raised by the thread that learnt of it (a backend's completion thread,
//! or one that synchronised) *before* it takes the lock, and a waiter looks at it again *under* the lock
//! before it leaves its waker there: so no wake is lost. Wakers are woken without the lock.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use crate::{Error, Result};

/// How far a stream is.
#[derive(Default)]
pub(crate) struct Progress {
    completed: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    failed: Option<Error>,
    /// By submission number, then by waiter.
    wakers: BTreeMap<(u64, u64), Waker>,
    next_waiter: u64,
}

impl Progress {
    /// The last submission known to have run.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// How submission `number` ended, if that is known.
    pub(crate) fn outcome(&self, number: u64) -> Option<Result<()>> {
        if self.completed() >= number {
            return Some(Ok(()));
        }
        self.waiting.lock().failed.clone().map(Err)
    }

    /// The error that ended this stream.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.waiting.lock().failed.clone()
    }

    /// Everything up to `number` has run.
    pub(crate) fn advance(&self, number: u64) {
        self.completed.fetch_max(number, Ordering::AcqRel);
        let woken = {
            let mut waiting = self.waiting.lock();
            if waiting.wakers.is_empty() {
                return;
            }
            let later = waiting.wakers.split_off(&(number.saturating_add(1), 0));
            std::mem::replace(&mut waiting.wakers, later)
        };
        woken.into_values().for_each(Waker::wake);
    }

    /// What is not complete now never will be.
    pub(crate) fn fail(&self, error: Error) {
        let woken = {
            let mut waiting = self.waiting.lock();
            waiting.failed.get_or_insert(error);
            std::mem::take(&mut waiting.wakers)
        };
        woken.into_values().for_each(Waker::wake);
    }

    /// Forgets a failure: the device was reset.
    pub(crate) fn recover(&self, number: u64) {
        self.waiting.lock().failed = None;
        self.advance(number);
    }

    fn new_waiter(&self) -> u64 {
        let mut waiting = self.waiting.lock();
        waiting.next_waiter += 1;
        waiting.next_waiter
    }
}

/// Waits for one submission of one stream. Dropping it forgets its waker.
pub struct Waiter {
    progress: Arc<Progress>,
    key: (u64, u64),
    registered: bool,
}

impl Waiter {
    pub(crate) fn new(progress: Arc<Progress>, number: u64) -> Self {
        let key = (number, progress.new_waiter());
        Self { progress, key, registered: false }
    }

    /// Ready when the submission has run, or cannot.
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<()>> {
        if self.progress.completed() >= self.key.0 {
            return Poll::Ready(Ok(()));
        }
        let mut waiting = self.progress.waiting.lock();
        if self.progress.completed() >= self.key.0 {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &waiting.failed {
            return Poll::Ready(Err(error.clone()));
        }
        let previous = waiting.wakers.insert(self.key, task.waker().clone());
        drop(waiting);
        drop(previous);
        self.registered = true;
        Poll::Pending
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.registered {
            let waker = self.progress.waiting.lock().wakers.remove(&self.key);
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, task::Wake};

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
    fn wakes_those_that_are_done_and_no_others() {
        let progress = Arc::new(Progress::default());
        let (_first, woken_first) = waiting(&progress, 2);
        let (mut second, woken_second) = waiting(&progress, 3);
        progress.advance(2);
        assert_eq!(woken_first.0.load(Ordering::SeqCst), 1);
        assert_eq!(woken_second.0.load(Ordering::SeqCst), 0);
        progress.advance(7);
        let waker = Waker::noop();
        assert_eq!(second.poll(&mut Context::from_waker(waker)), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_dropped_waiter_leaves_nothing_behind() {
        let progress = Arc::new(Progress::default());
        let (waiter, woken) = waiting(&progress, 1);
        drop(waiter);
        progress.advance(1);
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        assert_eq!(Arc::strong_count(&woken), 1);
    }

    #[test]
    fn failure_reaches_what_is_unfinished_and_not_what_is_done() {
        let progress = Arc::new(Progress::default());
        let (mut waiter, woken) = waiting(&progress, 5);
        progress.advance(4);
        progress.fail(Error::NeedsHostData);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        let waker = Waker::noop();
        let outcome = waiter.poll(&mut Context::from_waker(waker));
        assert_eq!(outcome, Poll::Ready(Err(Error::NeedsHostData)));
        assert_eq!(progress.outcome(4), Some(Ok(())));
    }
}
