//! How far a stream is, and who waits for it to get further.
//!
//! # Who may touch what
//! `completed` only grows; it is raised by the thread that learnt of it (a backend's completion thread,
//! or one that synchronised) *before* it looks whether anybody waits, and a waiter counts itself in *before* it
//! looks at `completed` again (all four sequentially consistent): so one of the two sees the other, and no wake
//! is lost. Wakers are kept under the lock; they are cloned, dropped and woken without it.

use std::{
    collections::BTreeMap,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use crate::{
    Error, Result,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    wake_each,
};

/// How far a stream is.
#[derive(Default)]
pub(crate) struct Progress {
    completed: AtomicU64,
    /// Whether `waiting.lost` has anything: a look at it need not lock.
    lossy: AtomicBool,
    /// How many wakers `waiting` has, or is about to have: whoever raises `completed` need not lock for none.
    waiters: AtomicU64,
    next_waiter: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// What ended the stream; nothing that is not complete now will be.
    failed: Option<Error>,
    /// Submissions that did not run though later ones may: (first, last, why), in order.
    lost: Vec<(u64, u64, Error)>,
    /// By submission number, then by waiter.
    wakers: BTreeMap<(u64, u64), Waker>,
}

/// Stretches of lost submissions that a stream tells apart; beyond that the two oldest become one, with
/// what lay between them.
const MAX_LOST: usize = 16;

impl Progress {
    /// The last submission known to be over.
    #[inline]
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::SeqCst)
    }

    /// How submission `number` ended, if that is known.
    #[inline]
    pub(crate) fn outcome(&self, number: u64) -> Option<Result<()>> {
        if self.completed() >= number && !self.lossy.load(Ordering::Acquire) {
            return Some(Ok(()));
        }
        self.outcome_under(&self.waiting.lock(), number)
    }

    fn outcome_under(&self, waiting: &Waiting, number: u64) -> Option<Result<()>> {
        if self.completed() >= number {
            let lost =
                waiting.lost.iter().find(|(first, last, _)| (*first..=*last).contains(&number));
            return Some(lost.map_or(Ok(()), |(.., error)| Err(error.clone())));
        }
        waiting.failed.clone().map(Err)
    }

    /// The error that ended this stream.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.waiting.lock().failed.clone()
    }

    /// Everything up to `number` has run.
    pub(crate) fn advance(&self, number: u64) -> Woken {
        self.completed.fetch_max(number, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return Woken::default();
        }
        self.take_up_to(&mut self.waiting.lock(), number)
    }

    /// What is not complete up to `number` did not run, and never will.
    pub(crate) fn lose(&self, number: u64, error: Error) -> Woken {
        let mut waiting = self.waiting.lock();
        let first = self.completed() + 1;
        if first <= number {
            waiting.add_lost(first, number, error);
            self.lossy.store(true, Ordering::Release);
            self.completed.fetch_max(number, Ordering::SeqCst);
        }
        self.take_up_to(&mut waiting, number)
    }

    /// What is not complete now never will be.
    pub(crate) fn fail(&self, error: Error) -> Woken {
        let mut waiting = self.waiting.lock();
        waiting.failed.get_or_insert(error);
        self.take_up_to(&mut waiting, u64::MAX)
    }

    /// The device was reset: what it had up to `number` is lost, what comes next is not.
    pub(crate) fn recover(&self, number: u64) -> Woken {
        let failed = self.waiting.lock().failed.take();
        match failed {
            Some(error) => self.lose(number, error),
            None => self.advance(number),
        }
    }

    /// The wakers of those that wait for `number` or less.
    fn take_up_to(&self, waiting: &mut Waiting, number: u64) -> Woken {
        if waiting.wakers.is_empty() {
            return Woken::default();
        }
        let later = match number.checked_add(1) {
            Some(next) => waiting.wakers.split_off(&(next, 0)),
            None => BTreeMap::new(),
        };
        let due = std::mem::replace(&mut waiting.wakers, later);
        self.waiters.fetch_sub(due.len() as u64, Ordering::SeqCst);
        Woken(due)
    }

    /// Whether nothing is left of those who waited.
    #[cfg(all(test, loom))]
    pub(crate) fn has_no_waiters(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) == 0 && self.waiting.lock().wakers.is_empty()
    }

    fn new_waiter(&self) -> u64 {
        self.next_waiter.fetch_add(1, Ordering::Relaxed)
    }
}

impl Waiting {
    fn add_lost(&mut self, first: u64, last: u64, error: Error) {
        self.lost.push((first, last, error));
        if self.lost.len() > MAX_LOST {
            let (first, ..) = self.lost.remove(0);
            self.lost[0].0 = first;
        }
    }
}

/// Wakers, woken when this is dropped: by callers that hold locks, after they let go of them, since whoever is
/// woken may call anything at once.
#[derive(Default)]
pub(crate) struct Woken(BTreeMap<(u64, u64), Waker>);

impl Drop for Woken {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_empty() {
            self.wake();
        }
    }
}

impl Woken {
    fn wake(&mut self) {
        wake_each(std::mem::take(&mut self.0).into_values());
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
        if let Some(outcome) = self.progress.outcome(self.key.0) {
            return Poll::Ready(outcome);
        }
        let waker = task.waker().clone();
        let mut waiting = self.progress.waiting.lock();
        let previous = waiting.wakers.insert(self.key, waker);
        if previous.is_none() {
            self.progress.waiters.fetch_add(1, Ordering::SeqCst);
        }
        // Asked again now that whoever gets the stream further must see this waiter.
        let outcome = self.progress.outcome_under(&waiting, self.key.0);
        drop(waiting);
        self.registered = true;
        drop(previous);
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.registered {
            let mut waiting = self.progress.waiting.lock();
            let waker = waiting.wakers.remove(&self.key);
            if waker.is_some() {
                self.progress.waiters.fetch_sub(1, Ordering::SeqCst);
            }
            drop(waiting);
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

    #[test]
    fn what_a_reset_loses_stays_lost() {
        let progress = Arc::new(Progress::default());
        progress.advance(3);
        let (mut waiter, woken) = waiting(&progress, 5);
        progress.fail(Error::NeedsHostData);
        progress.recover(6);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        let waker = Waker::noop();
        let outcome = waiter.poll(&mut Context::from_waker(waker));
        assert_eq!(outcome, Poll::Ready(Err(Error::NeedsHostData)));
        assert_eq!(progress.outcome(3), Some(Ok(())));
        assert_eq!(progress.outcome(6), Some(Err(Error::NeedsHostData)));
        assert_eq!(progress.outcome(7), None);
        progress.advance(7);
        assert_eq!(progress.outcome(7), Some(Ok(())));
        assert_eq!(progress.outcome(4), Some(Err(Error::NeedsHostData)));
    }

    #[test]
    fn losses_are_bounded_and_none_is_forgotten() {
        let progress = Progress::default();
        for number in 1..100 {
            progress.advance(2 * number - 1);
            progress.lose(2 * number, Error::AlreadyEnded);
        }
        assert!(
            (1..100).all(|number| progress.outcome(2 * number) == Some(Err(Error::AlreadyEnded)))
        );
        assert!(progress.waiting.lock().lost.len() <= MAX_LOST);
    }

    #[test]
    fn a_waker_that_panics_does_not_keep_others_asleep() {
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
        progress.advance(1);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    }
}
