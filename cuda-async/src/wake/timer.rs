//! The timer: one thread for the process, which runs only while tasks sleep.
//!
//! # Rules
//! All state is under one lock. Wakers are cloned, dropped and woken without the lock, because a woken task may sleep
//! again at once. The thread ends after [`LINGER`] without sleepers. The next sleeper starts another one.

use std::{
    task::{Context, Poll},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use cuda_core::{
    Error, Result,
    internals::sync::{WakerSet, Woken},
};
use parking_lot::{Condvar, Mutex};

/// The time for which the timer thread stays alive without sleepers.
pub const LINGER: Duration = Duration::from_secs(1);

static TIMER: Mutex<Timer> =
    Mutex::new(Timer { sleepers: WakerSet::new(), next_sleeper: 0, thread: TimerThread::None });
/// Signals that the first deadline is earlier than before.
static EARLIER: Condvar = Condvar::new();

struct Timer {
    /// By deadline, then by sleeper.
    sleepers: WakerSet<Key>,
    next_sleeper: u64,
    thread: TimerThread,
}

type Key = (Instant, u64);

#[derive(Clone, Copy, PartialEq)]
enum TimerThread {
    None,
    /// The thread was spawned and has not run yet.
    Starting,
    Running(ThreadId),
}

/// Whether the calling thread is the timer thread. A blocking wait for a deadline would never end on that thread.
pub(crate) fn is_timer_thread() -> bool {
    TIMER.lock().thread == TimerThread::Running(thread::current().id())
}

/// A wait until a deadline. Dropping it removes its waker.
pub(crate) struct Sleep {
    /// `None` if the deadline is beyond the range of the clock: the sleep never ends.
    until: Option<Instant>,
    key: Option<Key>,
}

impl Sleep {
    /// Sleeps for `time` from now on.
    pub(crate) fn new(time: Duration) -> Self {
        Self { until: Instant::now().checked_add(time), key: None }
    }

    /// Ready when the deadline has passed.
    ///
    /// # Errors
    /// [`Error::Host`] if the timer thread cannot be started.
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
        let is_first = timer.sleepers.first() == Some(&key);
        let started = timer.start();
        drop(timer);
        drop(previous);
        if is_first {
            EARLIER.notify_one();
        }
        started.map_or_else(|error| Poll::Ready(Err(error)), |()| Poll::Pending)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.key.and_then(|key| TIMER.lock().sleepers.remove(&key));
        drop(waker);
    }
}

impl Timer {
    /// Starts the thread, unless it runs.
    fn start(&mut self) -> Result<()> {
        if self.thread != TimerThread::None {
            return Ok(());
        }
        let spawned = thread::Builder::new().name("cuda-timer".into()).spawn(run);
        spawned.map_err(|error| Error::host("failed to spawn the timer thread", &error))?;
        self.thread = TimerThread::Starting;
        Ok(())
    }

    /// Takes the wakers whose deadline has passed.
    fn take_due(&mut self) -> Woken {
        self.sleepers.take_below(&(Instant::now(), u64::MAX))
    }
}

/// The body of the timer thread.
fn run() {
    let guard = RunningGuard;
    let mut timer = TIMER.lock();
    timer.thread = TimerThread::Running(thread::current().id());
    loop {
        let due = timer.take_due();
        if !due.is_empty() {
            drop(timer);
            due.wake();
            timer = TIMER.lock();
            continue;
        }
        let first = timer.sleepers.first().map(|(until, _)| *until);
        let until = first.unwrap_or_else(|| Instant::now() + LINGER);
        let waited = EARLIER.wait_until(&mut timer, until);
        if waited.timed_out() && timer.sleepers.is_empty() {
            timer.thread = TimerThread::None;
            // Another thread may start as soon as the lock is released, so the guard must not run.
            return std::mem::forget(guard);
        }
    }
}

/// Marks the timer thread as ended if it panics, so that the next sleeper starts another one.
struct RunningGuard;

impl Drop for RunningGuard {
    fn drop(&mut self) {
        TIMER.lock().thread = TimerThread::None;
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

    use std::task::Waker;

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
    fn sleep_lasts_at_least_its_time() {
        for millis in [0, 1, 30, 5] {
            let start = Instant::now();
            sleep(&mut Sleep::new(Duration::from_millis(millis)));
            assert!(start.elapsed() >= Duration::from_millis(millis));
            assert!(start.elapsed() < Duration::from_secs(10));
        }
    }

    #[test]
    fn panicking_waker_does_not_prevent_other_sleeps_from_waking() {
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
    fn dropped_sleep_drops_its_waker() {
        let woken = unpark();
        let mut dropped = Sleep::new(Duration::from_millis(10));
        assert!(dropped.poll(&Context::from_waker(&Waker::from(woken.clone()))).is_pending());
        drop(dropped);
        assert_eq!(Arc::strong_count(&woken), 1);
        sleep(&mut Sleep::new(Duration::from_millis(20)));
        assert!(!woken.1.load(Ordering::SeqCst));
    }

    #[test]
    fn deadline_beyond_the_clock_never_comes() {
        let mut never = Sleep::new(Duration::MAX);
        assert!(never.poll(&Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn timer_thread_ends_and_starts_again() {
        sleep(&mut Sleep::new(Duration::from_millis(1)));
        std::thread::sleep(LINGER + Duration::from_millis(300));
        sleep(&mut Sleep::new(Duration::from_millis(1)));
    }
}
