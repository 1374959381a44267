//! Queues that wait for device memory.

use std::{mem, sync::Arc};

use parking_lot::Mutex;

pub(crate) struct MemoryWaiters<Q>(Mutex<Vec<Arc<Q>>>);

impl<Q> Default for MemoryWaiters<Q> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Q> MemoryWaiters<Q> {
    /// Whether memory is available (`room`). If not, adds `queue` to the waiting queues, which
    /// [`take`](Self::take) returns.
    pub(crate) fn check_or_wait(&self, queue: &Arc<Q>, room: impl Fn() -> bool) -> bool {
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

    /// Takes all waiting queues. The caller must start each of them, and each checks again.
    pub(crate) fn take(&self) -> Vec<Arc<Q>> {
        mem::take(&mut *self.0.lock())
    }
}
