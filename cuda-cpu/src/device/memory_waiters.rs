//! Queues that wait for device memory.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{backend::Shared, queue::Queue};

#[derive(Default)]
pub(crate) struct MemoryWaiters(Mutex<Vec<Arc<Queue>>>);

impl MemoryWaiters {
    /// Whether memory is available (`room`). If not, `queue` is restarted after the next free.
    pub(crate) fn check_or_wait(&self, queue: &Arc<Queue>, room: impl Fn() -> bool) -> bool {
        if room() {
            return true;
        }
        let mut waiting = self.0.lock();
        // Check again under the lock: memory may have been freed since the first check.
        let room = room();
        if !room {
            waiting.push(queue.clone());
        }
        room
    }

    /// Restarts all waiting queues, which check again. Called after memory was freed.
    pub(crate) fn wake(&self, shared: &Arc<Shared>) {
        let woken = std::mem::take(&mut *self.0.lock());
        woken.iter().for_each(|queue| queue.start(shared));
    }
}
