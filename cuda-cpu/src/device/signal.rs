//! A point of a queue that others wait for: what recording an event makes.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::queue::Queue;

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

    /// Blocks the calling thread until it fires.
    pub(crate) fn wait(&self) {
        let mut state = self.state.lock();
        while !state.fired {
            self.fired.wait(&mut state);
        }
    }
}
