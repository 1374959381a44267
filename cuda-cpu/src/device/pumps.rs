//! The threads that work off queues.
//!
//! They are apart from those that run blocks, so that a short kernel never waits on a thread that is inside a
//! long one, and no stack holds more than one kernel. A thread is started when a queue is ready and all others
//! are busy, up to a limit; idle ones sleep.

use std::{collections::VecDeque, io, sync::Arc, thread};

use parking_lot::{Condvar, Mutex};

use super::{backend::Shared, queue::Queue};

/// Times that an idle thread lets others run before it sleeps: work often comes in quick succession.
const YIELDS: u32 = 32;

pub(crate) struct Pumps(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    wake: Condvar,
    most: usize,
}

#[derive(Default)]
struct State {
    ready: VecDeque<(Arc<Queue>, Arc<Shared>)>,
    threads: usize,
    /// Threads that look for a queue, or sleep until there is one.
    idle: usize,
    closed: bool,
}

impl Pumps {
    /// At most `most` threads; the first is started now.
    pub(crate) fn new(most: usize) -> io::Result<Self> {
        let state = Mutex::new(State { threads: 1, ..State::default() });
        let inner = Arc::new(Inner { state, wake: Condvar::new(), most });
        inner.clone().spawn(0)?;
        Ok(Self(inner))
    }

    /// Has a thread pump this queue.
    pub(crate) fn start(&self, queue: Arc<Queue>, shared: Arc<Shared>) {
        let inner = &self.0;
        let mut state = inner.state.lock();
        state.ready.push_back((queue, shared));
        if state.idle >= state.ready.len() {
            drop(state);
            inner.wake.notify_one();
        } else if state.threads < inner.most {
            let index = state.threads;
            state.threads += 1;
            drop(state);
            if inner.clone().spawn(index).is_err() {
                // Those that there are will come to it.
                inner.state.lock().threads -= 1;
            }
        }
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

    fn work(&self) {
        while let Some((queue, shared)) = self.next() {
            queue.pump(&shared);
        }
    }

    /// The next queue to pump; `None` when the device is gone.
    fn next(&self) -> Option<(Arc<Queue>, Arc<Shared>)> {
        let mut yields = 0;
        let mut state = self.state.lock();
        state.idle += 1;
        let next = loop {
            if let Some(next) = state.ready.pop_front() {
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
