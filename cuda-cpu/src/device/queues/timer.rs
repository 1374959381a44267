//! A timer: a thread that runs actions when they are due.
//!
//! The first action starts the thread. It sleeps while no action is due. The last device handle may be dropped on this
//! thread, so it is never joined. It ends when its owner is dropped and all actions have run.

use std::{collections::BTreeMap, io, sync::Arc, thread, time::Instant};

use parking_lot::{Condvar, Mutex};

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
    use std::{sync::mpsc::channel, time::Duration};

    use super::*;

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
