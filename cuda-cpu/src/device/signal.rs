//! A point of a queue that others wait for: what recording an event makes.

use std::{sync::Arc, thread};

use parking_lot::{Condvar, Mutex};

use super::queue::Queue;

/// Times that a thread that waits lets others run before it sleeps.
const YIELDS: u32 = 32;

/// Fired once. Queues that wait are started again; threads that wait are woken.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    fired: Condvar,
}

#[derive(Default)]
struct State {
    fired: bool,
    waiting: Vec<Arc<Queue>>,
}

impl Signal {
    /// Fires it; gives the queues to be started again.
    pub(crate) fn fire(&self) -> Vec<Arc<Queue>> {
        let mut state = self.state.lock();
        state.fired = true;
        self.fired.notify_all();
        std::mem::take(&mut state.waiting)
    }

    /// Whether it has fired; if not, `queue` will be started again when it does.
    pub(crate) fn reached_by(&self, queue: &Arc<Queue>) -> bool {
        let mut state = self.state.lock();
        if !state.fired {
            state.waiting.push(queue.clone());
        }
        state.fired
    }

    pub(crate) fn has_fired(&self) -> bool {
        self.state.lock().fired
    }

    /// Blocks the calling thread until it fires.
    pub(crate) fn wait(&self) {
        // Who sleeps has to be woken, which takes longer than most of what is waited for.
        for _ in 0..YIELDS {
            if self.has_fired() {
                return;
            }
            thread::yield_now();
        }
        let mut state = self.state.lock();
        while !state.fired {
            self.fired.wait(&mut state);
        }
    }
}
