//! The threads that run queues and deliver notices.
//!
//! They are separate from the threads that run blocks, so that a short kernel never waits for a thread that is inside a
//! long one, and no stack holds more than one kernel. A thread is started when a queue is ready and all others
//! are busy, up to a limit; idle ones sleep. The thread that delivers [`notices`](super::notices) does not count. A thread of
//! the application that waits for a queue which no pump has begun pumps it itself, so that no thread has to be woken.

use std::{collections::VecDeque, io, sync::Arc, thread};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{backend::Shared, queue::Queue, signal::Signal};

/// Times that an idle thread lets others run before it sleeps: work often comes in quick succession.
const YIELDS: u32 = 32;

pub(crate) struct Pumps(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    wake: Condvar,
    /// Queues that are pumped at the same time.
    most: usize,
}

/// A queue to pump; with none there are only notices to deliver.
type Job = (Option<Arc<Queue>>, Arc<Shared>);

#[derive(Default)]
struct State {
    ready: VecDeque<Job>,
    threads: usize,
    /// Threads that look for a queue, or sleep until there is one.
    idle: usize,
    /// Threads that pump.
    pumping: usize,
    /// Whether a thread delivers notices, which may take long.
    telling: bool,
    closed: bool,
}

impl Pumps {
    /// At most `most` threads that pump; the first is started now.
    pub(crate) fn new(most: usize) -> io::Result<Self> {
        let state = Mutex::new(State { threads: 1, ..State::default() });
        let inner = Arc::new(Inner { state, wake: Condvar::new(), most });
        inner.clone().spawn(0)?;
        Ok(Self(inner))
    }

    /// Has a thread pump this queue; without a queue, has it deliver notices.
    pub(crate) fn start(&self, queue: Option<Arc<Queue>>, shared: Arc<Shared>) {
        let mut state = self.0.state.lock();
        state.ready.push_back((queue, shared));
        self.0.call(state);
    }

    /// Pumps a queue on this thread until `until` has fired, if no other thread pumps it and one more may pump.
    pub(crate) fn pump_here(
        &self,
        queue: &Arc<Queue>,
        shared: &Arc<Shared>,
        until: &Signal,
    ) -> bool {
        let Some(queue) = self.0.take_back(queue) else { return false };
        queue.pump(shared, Some(until));
        let mut state = self.0.state.lock();
        state.pumping -= 1;
        if !state.ready.is_empty() {
            self.0.call(state);
        }
        true
    }
}

impl Drop for Pumps {
    /// The threads end; one of them may be the caller. No queue is ready, for that would hold the owner.
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.wake.notify_all();
    }
}

impl Inner {
    fn spawn(self: Arc<Self>, index: usize) -> io::Result<()> {
        let name = format!("cuda-cpu-stream-{index}");
        thread::Builder::new().name(name).spawn(move || self.work()).map(drop)
    }

    /// Wakes or starts a thread for the queues that are ready.
    fn call(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        // Also where there are fewer idle threads than queues: a thread that was woken while all slots were taken sleeps
        // again, and no other call wakes it when a slot is free.
        if state.idle > 0 {
            self.wake.notify_one();
        }
        let too_few = state.idle < state.ready.len();
        if too_few && state.threads < self.most + usize::from(state.telling) {
            let index = state.threads;
            state.threads += 1;
            drop(state);
            if self.clone().spawn(index).is_err() {
                // The threads that exist will take it.
                self.state.lock().threads -= 1;
            }
        }
    }

    /// Takes a ready queue out, and counts the caller as a pump.
    fn take_back(&self, queue: &Arc<Queue>) -> Option<Arc<Queue>> {
        let mut state = self.state.lock();
        if state.pumping >= self.most {
            return None;
        }
        let same = |(ready, _): &Job| ready.as_ref().is_some_and(|ready| Arc::ptr_eq(ready, queue));
        let at = state.ready.iter().position(same)?;
        state.pumping += 1;
        state.ready.remove(at)?.0
    }

    fn work(self: Arc<Self>) {
        while let Some((queue, shared)) = self.next() {
            if let Some(queue) = queue {
                queue.pump(&shared, None);
            }
            self.state.lock().pumping -= 1;
            if shared.notices.begin() {
                self.tell(&shared);
            }
        }
    }

    /// Another thread pumps meanwhile in place of this one.
    fn tell(self: &Arc<Self>, shared: &Shared) {
        let mut state = self.state.lock();
        state.telling = true;
        if !state.ready.is_empty() {
            self.call(state);
        } else {
            drop(state);
        }
        shared.notices.deliver();
        self.state.lock().telling = false;
    }

    /// The next queue to pump; `None` when the device is gone.
    fn next(&self) -> Option<Job> {
        let mut yields = 0;
        let mut state = self.state.lock();
        state.idle += 1;
        let next = loop {
            if state.pumping < self.most
                && let Some(next) = state.ready.pop_front()
            {
                state.pumping += 1;
                break Some(next);
            }
            if state.closed {
                break None;
            }
            if yields < YIELDS {
                yields += 1;
                drop(state);
                thread::yield_now();
                state = self.state.lock();
            } else {
                self.wake.wait(&mut state);
            }
        };
        state.idle -= 1;
        next
    }
}
