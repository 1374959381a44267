//! Waiters: every waiter is woken, with the result of its own submission.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use ::loom::thread;

use super::{block_on, check};
use crate::{Error, Result, Waiter, order::timeline::Progress, sync::Woken};

fn wait(progress: &Arc<Progress>, number: u64) -> Result<()> {
    let mut waiter = Waiter::new(progress.clone(), number);
    block_on(|task| waiter.poll(task))
}

/// Runs this on the thread that takes notices.
fn notice(
    progress: &Arc<Progress>,
    notice: impl FnOnce(&Progress) -> Woken + 'static,
) -> thread::JoinHandle<()> {
    let progress = progress.clone();
    thread::spawn(move || drop(notice(&progress)))
}

#[test]
fn progress_wakes_a_waiter_that_it_covers() {
    check(None, || {
        let progress = Arc::default();
        let noticed = notice(&progress, |progress| progress.advance(2));
        assert_eq!(wait(&progress, 1), Ok(()));
        noticed.join().unwrap();
    });
}

#[test]
fn failure_is_visible_before_completion() {
    check(None, || {
        let progress = Arc::default();
        let noticed = notice(&progress, |progress| {
            progress.fail(1, Error::AlreadyEnded);
            progress.advance(1)
        });
        assert_eq!(wait(&progress, 1), Err(Error::AlreadyEnded));
        assert_eq!(progress.outcome(1), Some(Err(Error::AlreadyEnded)));
        noticed.join().unwrap();
    });
}

/// Submission 1 fails, 2 completes, and then the device is lost.
#[test]
fn lost_device_ends_submissions_that_are_not_complete() {
    check(Some(2), || {
        let progress = Arc::default();
        let noticed = notice(&progress, |progress| {
            progress.fail(1, Error::AlreadyEnded);
            drop(progress.advance(2));
            progress.fail_all(Error::AlreadyEnded)
        });
        let waiters = [(1, Err(Error::AlreadyEnded)), (2, Ok(()))].map(|(number, result)| {
            let progress = progress.clone();
            thread::spawn(move || assert_eq!(wait(&progress, number), result))
        });
        assert_eq!(wait(&progress, 3), Err(Error::AlreadyEnded));
        noticed.join().unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert!(progress.has_no_waiters());
    });
}

/// The loss is learned on another thread than the progress.
#[test]
fn loss_beside_progress_wakes_every_waiter() {
    check(Some(4), || {
        let progress = Arc::<Progress>::default();
        let advances = notice(&progress, |progress| {
            progress.fail(1, Error::AlreadyEnded);
            progress.advance(2)
        });
        let lost = notice(&progress, |progress| progress.fail_all(Error::AlreadyEnded));
        // The submission was complete before the loss, or was not.
        let result = wait(&progress, 2);
        assert!([Ok(()), Err(Error::AlreadyEnded)].contains(&result), "{result:?}");
        [advances, lost].into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(progress.outcome(1), Some(Err(Error::AlreadyEnded)));
        assert_eq!(progress.outcome(2), Some(Ok(())));
        assert_eq!(progress.outcome(3), Some(Err(Error::AlreadyEnded)));
        assert!(progress.has_no_waiters());
    });
}

/// A waiter that is dropped meanwhile takes no other's wake with it, and two threads that report progress at once wake
/// every waiter.
#[test]
fn waiters_come_and_go_while_the_stream_advances() {
    check(Some(2), || {
        let progress = Arc::<Progress>::default();
        let noticed = [1, 2].map(|number| notice(&progress, move |p| p.advance(number)));
        let gone = thread::spawn({
            let progress = progress.clone();
            move || {
                let mut waiter = Waiter::new(progress, 2);
                _ = waiter.poll(&mut Context::from_waker(Waker::noop()));
            }
        });
        assert_eq!(wait(&progress, 2), Ok(()));
        noticed.into_iter().for_each(|thread| thread.join().unwrap());
        gone.join().unwrap();
        assert!(progress.has_no_waiters());
    });
}

/// No lock is held while a waker runs.
#[test]
fn waker_may_call_the_stream() {
    struct Asks(Arc<Progress>, AtomicBool);
    impl std::task::Wake for Asks {
        fn wake(self: Arc<Self>) {
            assert!(self.0.has_no_waiters());
            self.1.store(true, Relaxed);
        }
    }
    check(None, || {
        let progress = Arc::<Progress>::default();
        let asks = Arc::new(Asks(progress.clone(), AtomicBool::new(false)));
        let mut waiter = Waiter::new(progress.clone(), 1);
        let noticed = notice(&progress, |progress| progress.advance(1));
        let polled = waiter.poll(&mut Context::from_waker(&Waker::from(asks.clone())));
        noticed.join().unwrap();
        assert!(asks.1.load(Relaxed) || matches!(polled, Poll::Ready(Ok(()))));
    });
}

/// A waiter that is polled again after its result leaves no waker behind.
#[test]
fn waiter_that_is_polled_after_its_result_leaves_nothing_behind() {
    check(None, || {
        let progress = Arc::<Progress>::default();
        let noticed = notice(&progress, |progress| progress.advance(1));
        let mut waiter = Waiter::new(progress.clone(), 1);
        for _ in 0..2 {
            _ = waiter.poll(&mut Context::from_waker(Waker::noop()));
        }
        drop(waiter);
        noticed.join().unwrap();
        assert!(progress.outcome(1).is_some() && progress.has_no_waiters());
    });
}
