//! Sleeping: one thread for the process, there only while somebody sleeps.
//!
//! # Who may touch what
//! Everything is under one lock. Wakers are cloned, dropped and woken without it: whoever is woken may sleep again
//! at once. The thread goes away after [`LINGER`] without sleepers; who sleeps next starts another.

use std::{
    collections::BTreeMap,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use cuda_core::{Error, Result, sync::wake_each};
use parking_lot::{Condvar, Mutex};

/// How long the timer's thread waits for another sleeper before it ends.
pub const LINGER: Duration = Duration::from_secs(1);

static TIMER: Mutex<Timer> =
    Mutex::new(Timer { sleepers: BTreeMap::new(), next_sleeper: 0, running: false });
/// There is an earlier sleeper than before.
static EARLIER: Condvar = Condvar::new();

struct Timer {
    /// By deadline, then by sleeper.
    sleepers: BTreeMap<Key, Waker>,
    next_sleeper: u64,
    running: bool,
}

type Key = (Instant, u64);

/// A wait for a moment. Dropping it forgets its waker.
pub(crate) struct Sleep {
    /// None where the moment is beyond what the clock can tell: never.
    until: Option<Instant>,
    key: Option<Key>,
}

impl Sleep {
    /// From now.
    pub(crate) fn new(time: Duration) -> Self {
        Self { until: Instant::now().checked_add(time), key: None }
    }

    /// Ready when the time has come.
    ///
    /// # Errors
    /// [`Error::Host`] if there is no thread to be had.
    pub(crate) fn poll(&mut self, task: &Context<'_>) -> Poll<Result<()>> {
        let Some(until) = self.until else { return Poll::Pending };
        if Instant::now() >= until {
            return Poll::Ready(Ok(()));
        }
        let waker = task.waker().clone();
        let mut timer = TIMER.lock();
        let key = *self.key.get_or_insert_with(|| {
            timer.next_sleeper += 1;
            (until, timer.next_sleeper)
        });
        let previous = timer.sleepers.insert(key, waker);
        let first = timer.sleepers.first_key_value().is_some_and(|(first, _)| *first == key);
        let started = timer.start();
        drop(timer);
        drop(previous);
        if first {
            EARLIER.notify_one();
        }
        started.map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.key.and_then(|key| TIMER.lock().sleepers.remove(&key));
        drop(waker);
    }
}

impl Timer {
    /// Starts the thread unless it runs; the error if there is none to be had.
    fn start(&mut self) -> Option<Error> {
        if self.running {
            return None;
        }
        match std::thread::Builder::new().name("cuda-timer".into()).spawn(run) {
            Ok(_) => {
                self.running = true;
                None
            }
            Err(error) => {
                let what = "cannot start a thread for the time".into();
                Some(Error::Host { what, detail: error.to_string() })
            }
        }
    }

    /// The wakers whose time has come.
    fn take_due(&mut self) -> BTreeMap<Key, Waker> {
        let later = self.sleepers.split_off(&(Instant::now(), u64::MAX));
        std::mem::replace(&mut self.sleepers, later)
    }
}

/// The timer's thread.
fn run() {
    let runs = Runs;
    let mut timer = TIMER.lock();
    loop {
        let due = timer.take_due();
        if !due.is_empty() {
            drop(timer);
            wake_each(due.into_values());
            timer = TIMER.lock();
            continue;
        }
        let first = timer.sleepers.first_key_value().map(|((until, _), _)| *until);
        let until = first.unwrap_or_else(|| Instant::now() + LINGER);
        let waited = EARLIER.wait_until(&mut timer, until);
        if waited.timed_out() && timer.sleepers.is_empty() {
            timer.running = false;
            // Another thread may run as soon as the lock is gone.
            return std::mem::forget(runs);
        }
    }
}

/// The timer's thread runs: should it panic, who sleeps next starts another.
struct Runs;

impl Drop for Runs {
    fn drop(&mut self) {
        TIMER.lock().running = false;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        task::Wake,
        thread::Thread,
    };

    use super::*;

    struct Unpark(Thread, AtomicBool);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::SeqCst);
            self.0.unpark();
        }
    }

    fn unpark() -> Arc<Unpark> {
        Arc::new(Unpark(std::thread::current(), AtomicBool::new(false)))
    }

    fn sleep(sleep: &mut Sleep) {
        let waker = Waker::from(unpark());
        while sleep.poll(&Context::from_waker(&waker)).is_pending() {
            std::thread::park_timeout(Duration::from_secs(20));
        }
    }

    #[test]
    fn sleeps_as_long_as_it_should() {
        for millis in [0, 1, 30, 5] {
            let start = Instant::now();
            sleep(&mut Sleep::new(Duration::from_millis(millis)));
            assert!(start.elapsed() >= Duration::from_millis(millis));
            assert!(start.elapsed() < Duration::from_secs(10));
        }
    }

    #[test]
    fn many_sleepers_wake_in_time_and_a_panic_kills_nobody() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                std::panic::panic_any(Bomb);
            }
        }
        let mut panics = Sleep::new(Duration::from_millis(5));
        assert!(panics.poll(&Context::from_waker(&Waker::from(Arc::new(Panics)))).is_pending());
        let sleepers: Vec<_> = (0..50)
            .map(|i| {
                std::thread::spawn(move || sleep(&mut Sleep::new(Duration::from_millis(i % 10))))
            })
            .collect();
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        sleep(&mut Sleep::new(Duration::from_millis(10)));
    }

    #[test]
    fn a_dropped_sleep_leaves_nothing_behind() {
        let woken = unpark();
        let mut dropped = Sleep::new(Duration::from_millis(10));
        assert!(dropped.poll(&Context::from_waker(&Waker::from(woken.clone()))).is_pending());
        drop(dropped);
        assert_eq!(Arc::strong_count(&woken), 1);
        sleep(&mut Sleep::new(Duration::from_millis(20)));
        assert!(!woken.1.load(Ordering::SeqCst));
    }

    #[test]
    fn what_the_clock_cannot_tell_is_never() {
        let mut never = Sleep::new(Duration::MAX);
        assert!(never.poll(&Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn the_thread_goes_and_comes_back() {
        sleep(&mut Sleep::new(Duration::from_millis(1)));
        std::thread::sleep(LINGER + Duration::from_millis(300));
        sleep(&mut Sleep::new(Duration::from_millis(1)));
    }
}
