//! Waiters: nobody sleeps for ever, and everyone is told the truth.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use ::loom::thread;

use super::{block_on, check};
use crate::{
    Error, Result, Waiter,
    progress::{Progress, Woken},
};

fn wait(progress: &Arc<Progress>, number: u64) -> Result<()> {
    let mut waiter = Waiter::new(progress.clone(), number);
    block_on(|task| waiter.poll(task))
}

/// Runs this on a thread that learnt of it.
fn learn(
    progress: &Arc<Progress>,
    learn: impl FnOnce(&Progress) -> Woken + 'static,
) -> thread::JoinHandle<()> {
    let progress = progress.clone();
    thread::spawn(move || drop(learn(&progress)))
}

#[test]
fn a_waiter_is_woken_by_what_it_waits_for() {
    check(None, || {
        let progress = Arc::default();
        let learnt = learn(&progress, |progress| progress.advance(2));
        assert_eq!(wait(&progress, 1), Ok(()));
        learnt.join().unwrap();
    });
}

#[test]
fn a_waiter_is_told_that_its_submission_is_lost() {
    check(None, || {
        let progress = Arc::default();
        let learnt = learn(&progress, |progress| progress.lose(1, Error::AlreadyEnded));
        assert_eq!(wait(&progress, 1), Err(Error::AlreadyEnded));
        assert_eq!(progress.outcome(1), Some(Err(Error::AlreadyEnded)));
        learnt.join().unwrap();
    });
}

/// What ran before the device failed did; what comes after the reset may.
#[test]
fn a_failure_and_a_reset_end_what_was_in_flight() {
    check(Some(3), || {
        let progress = Arc::default();
        let learnt = learn(&progress, |progress| {
            drop(progress.advance(1));
            drop(progress.fail(Error::AlreadyEnded));
            drop(progress.recover(2));
            progress.advance(3)
        });
        let other = thread::spawn({
            let progress = progress.clone();
            move || assert_eq!(wait(&progress, 1), Ok(()))
        });
        assert_eq!(wait(&progress, 2), Err(Error::AlreadyEnded));
        learnt.join().unwrap();
        other.join().unwrap();
        assert_eq!(progress.outcome(3), Some(Ok(())));
        assert_eq!(progress.outcome(1), Some(Ok(())));
    });
}

/// One that goes meanwhile takes no other's wake with it, and two that learn of progress at once wake everyone.
#[test]
fn waiters_come_and_go_while_the_stream_gets_further() {
    check(Some(2), || {
        let progress = Arc::<Progress>::default();
        let learnt = [1, 2].map(|number| learn(&progress, move |p| p.advance(number)));
        let gone = thread::spawn({
            let progress = progress.clone();
            move || {
                let mut waiter = Waiter::new(progress, 2);
                _ = waiter.poll(&mut Context::from_waker(Waker::noop()));
            }
        });
        assert_eq!(wait(&progress, 2), Ok(()));
        learnt.into_iter().for_each(|thread| thread.join().unwrap());
        gone.join().unwrap();
        assert!(progress.has_no_waiters());
    });
}

/// Whoever is woken may ask the stream for anything: no lock is held.
#[test]
fn whoever_is_woken_may_ask_the_stream() {
    struct Asks(Arc<Progress>, std::sync::atomic::AtomicBool);
    impl std::task::Wake for Asks {
        fn wake(self: Arc<Self>) {
            assert_eq!(self.0.failure(), None);
            self.1.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    check(None, || {
        let progress = Arc::<Progress>::default();
        let asks = Arc::new(Asks(progress.clone(), false.into()));
        let mut waiter = Waiter::new(progress.clone(), 1);
        let learnt = learn(&progress, |progress| progress.advance(1));
        let polled = waiter.poll(&mut Context::from_waker(&Waker::from(asks.clone())));
        learnt.join().unwrap();
        let woken = asks.1.load(std::sync::atomic::Ordering::Relaxed);
        assert!(woken || matches!(polled, Poll::Ready(Ok(()))));
    });
}
