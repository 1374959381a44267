//! The time at which streams run their work: immediately, or at random times, which detects missing order.
//!
//! The [`Timer`] restarts delayed streams. Its first action starts its thread, which sleeps while no action is due. The
//! last device handle may be dropped on this thread, so it is never joined. It ends when its owner is dropped and all
//! actions have run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use parking_lot::{Condvar, Mutex};

use crate::random::Random;

/// The time at which a CPU device runs submissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Timing {
    /// As soon as possible.
    #[default]
    AsFastAsPossible,
    /// At random times, for tests. Unordered submissions run in all orders, which detects missing order between
    /// streams.
    ///
    /// - Every stream delays its submissions: one in sixteen by `max_delay`, and four in sixteen by up to an eighth of
    ///   that. A delay stalls all later submissions of the stream.
    /// - Memory exists from when the stream runs the allocation, not from its submission. An access that is not ordered
    ///   after the allocation faults.
    /// - Half of the notices are delivered late, by up to an eighth of `max_delay`. The notices of one stream stay in
    ///   order.
    ///
    /// A delayed stream occupies no thread; one timer restarts all streams. The delays of a stream depend only on
    /// `seed` and the stream's number. The timing of the machine adds variation from run to run.
    Adversarial {
        /// The seed of the random delays.
        seed: u64,
        /// The maximum delay. Values above a year count as a year.
        max_delay: Duration,
    },
}

/// The maximum delay, which the clock can represent.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The delays of one stream.
pub(crate) struct Pace {
    random: Random,
    max: Duration,
    /// Whether the next submission was already delayed.
    held: bool,
    /// The due time of the latest notice.
    last_notice: Instant,
}

impl Pace {
    /// Creates the delays of a stream. Returns `None` if `timing` has no delays.
    pub(crate) fn new(timing: Timing, stream: u64) -> Option<Self> {
        let Timing::Adversarial { seed, max_delay: max } = timing else { return None };
        let random = Random::new(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        Some(Self { random, max: max.min(LONGEST), held: false, last_notice: Instant::now() })
    }

    /// Returns the delay of the next submission. Called before the delay and after it.
    pub(crate) fn hold(&mut self) -> Option<Duration> {
        if std::mem::take(&mut self.held) {
            return None;
        }
        let hold = match self.random.next() % 16 {
            0 => self.max,
            1..=4 => self.short(),
            _ => return None,
        };
        self.held = true;
        Some(hold)
    }

    /// Returns the due time of a notice, which is never before that of an earlier notice.
    pub(crate) fn notice_due(&mut self) -> Instant {
        let now = Instant::now();
        let due = if self.random.next().is_multiple_of(2) { now + self.short() } else { now };
        self.last_notice = self.last_notice.max(due);
        self.last_notice
    }

    fn short(&mut self) -> Duration {
        let nanos = u64::try_from(self.max.as_nanos() / 8).unwrap_or(u64::MAX);
        Duration::from_nanos(self.random.next() % nanos.saturating_add(1).max(1))
    }
}

/// A thread that runs actions when they are due.
pub(crate) struct Timer<T: Send + 'static>(Arc<Inner<T>>);

struct Inner<T> {
    name: &'static str,
    act: Box<dyn Fn(T) + Send + Sync>,
    state: Mutex<State<T>>,
    wake: Condvar,
}

struct State<T> {
    /// Actions by due time, then in the order of the calls.
    waiting: BTreeMap<(Instant, u64), T>,
    count: u64,
    started: bool,
    /// Whether the owner was dropped. Remaining actions then run immediately.
    closed: bool,
}

/// The next step of the thread.
enum Next<T> {
    Act(T),
    Wait(Option<Instant>),
    End,
}

impl<T: Send + 'static> Timer<T> {
    /// Creates a timer without a thread. `act` runs one action and must not panic.
    pub(crate) fn new(name: &'static str, act: impl Fn(T) + Send + Sync + 'static) -> Self {
        let state = State { waiting: BTreeMap::new(), count: 0, started: false, closed: false };
        let (state, wake) = (Mutex::new(state), Condvar::new());
        Self(Arc::new(Inner { name, act: Box::new(act), state, wake }))
    }

    /// Schedules an action at `due`. Actions with the same due time run in the order of the calls.
    pub(crate) fn push(&self, due: Instant, thing: T) {
        let mut state = self.0.state.lock();
        state.count += 1;
        let key = (due, state.count);
        state.waiting.insert(key, thing);
        let started = std::mem::replace(&mut state.started, true);
        drop(state);
        if started {
            self.0.wake.notify_one();
        } else if self.0.clone().spawn().is_err() {
            self.0.run_all_now();
        }
    }
}

impl<T: Send + 'static> Drop for Timer<T> {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.wake.notify_one();
    }
}

impl<T: Send + 'static> Inner<T> {
    fn spawn(self: Arc<Self>) -> io::Result<()> {
        thread::Builder::new().name(self.name.into()).spawn(move || self.work()).map(drop)
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            match state.next() {
                Next::Act(thing) => {
                    drop(state);
                    (self.act)(thing);
                    state = self.state.lock();
                }
                Next::Wait(None) => self.wake.wait(&mut state),
                Next::Wait(Some(due)) => _ = self.wake.wait_until(&mut state, due),
                Next::End => return,
            }
        }
    }

    /// Runs all actions on the calling thread, because the timer thread failed to start. The next call tries again.
    fn run_all_now(&self) {
        let mut state = self.state.lock();
        state.started = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().for_each(&self.act);
    }
}

impl<T> State<T> {
    fn next(&mut self) -> Next<T> {
        let Some(first) = self.waiting.first_entry() else {
            return if self.closed { Next::End } else { Next::Wait(None) };
        };
        let due = first.key().0;
        if due > Instant::now() && !self.closed {
            return Next::Wait(Some(due));
        }
        Next::Act(first.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn delays(seed: u64, stream: u64) -> Vec<Option<Duration>> {
        let max_delay = Duration::from_micros(800);
        let mut pace = Pace::new(Timing::Adversarial { seed, max_delay }, stream).unwrap();
        let command = |_| pace.hold().inspect(|_| assert_eq!(pace.hold(), None));
        (0..1000).map(command).collect()
    }

    #[test]
    fn delays_come_from_the_seed_and_the_stream() {
        assert_eq!(delays(1, 1), delays(1, 1));
        assert_ne!(delays(1, 1), delays(1, 2));
        assert_ne!(delays(1, 1), delays(2, 1));
        let long = |delay: &&Option<Duration>| delay.is_some_and(|d| d.as_micros() == 800);
        let short = |delay: &&Option<Duration>| delay.is_some_and(|d| d.as_micros() <= 100);
        let (stalls, shorts) =
            (delays(3, 1).iter().filter(long).count(), delays(3, 1).iter().filter(short).count());
        assert!((30..100).contains(&stalls) && (180..320).contains(&shorts), "{stalls} {shorts}");
    }

    #[test]
    fn excessive_max_delay_is_clamped() {
        let timing = Timing::Adversarial { seed: 1, max_delay: Duration::MAX };
        let mut pace = Pace::new(timing, 1).unwrap();
        for _ in 0..100 {
            assert!(pace.hold().is_none_or(|hold| Instant::now().checked_add(hold).is_some()));
            assert!(pace.notice_due() >= pace.last_notice);
        }
    }

    #[test]
    fn notices_of_a_stream_stay_in_order() {
        let timing = Timing::Adversarial { seed: 5, max_delay: Duration::from_millis(100) };
        let mut pace = Pace::new(timing, 1).unwrap();
        let due: Vec<_> = (0..100).map(|_| pace.notice_due()).collect();
        assert!(due.is_sorted());
        assert!(Pace::new(Timing::AsFastAsPossible, 1).is_none());
    }

    #[test]
    fn actions_run_in_order_of_due_time() {
        let (done, what) = channel();
        let (go, gate) = channel();
        let gate = Mutex::new(gate);
        let act = move |thing: u32| {
            done.send(thing).unwrap();
            // Block until all actions were pushed.
            if thing == 0 {
                gate.lock().recv().unwrap();
            }
        };
        let timer = Timer::new("test", act);
        let now = Instant::now();
        timer.push(now, 0);
        assert_eq!(what.recv(), Ok(0));
        timer.push(now + Duration::from_millis(50), 3);
        timer.push(now + Duration::from_millis(20), 2);
        timer.push(now, 1);
        go.send(()).unwrap();
        assert_eq!([1, 2, 3].map(|_| what.recv().unwrap()), [1, 2, 3]);
        assert!(now.elapsed() >= Duration::from_millis(50));
        timer.push(now + Duration::from_secs(3600), 4);
        drop(timer);
        assert_eq!(what.recv(), Ok(4));
        assert!(what.recv().is_err(), "the thread has ended");
    }

    #[test]
    fn timer_may_be_dropped_on_its_own_thread() {
        let (done, ended) = channel();
        let timer = Arc::new(Mutex::new(None::<Timer<u32>>));
        let own = timer.clone();
        let act = move |_| {
            let last = own.lock().take();
            drop(last);
            done.send(()).unwrap();
        };
        *timer.lock() = Some(Timer::new("test", act));
        if let Some(timer) = &*timer.lock() {
            timer.push(Instant::now(), 1);
        }
        ended.recv().unwrap();
        assert!(ended.recv().is_err(), "the thread has ended");
    }
}
