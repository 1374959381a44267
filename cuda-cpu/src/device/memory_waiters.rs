//! Queues that wait for room in the device's memory.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{backend::Shared, queue::Queue};

#[derive(Default)]
pub(crate) struct Parked(Mutex<Vec<Arc<Queue>>>);

impl Parked {
    /// Whether there is room; if not, `queue` is started again when memory has been freed.
    pub(crate) fn has_room(&self, queue: &Arc<Queue>, room: impl Fn() -> bool) -> bool {
        if room() {
            return true;
        }
        let mut parked = self.0.lock();
        // Again, since memory may have been freed before the queue could be seen here.
        let room = room();
        if !room {
            parked.push(queue.clone());
        }
        room
    }

    /// Memory has been freed: all look again.
    pub(crate) fn wake(&self, shared: &Arc<Shared>) {
        let woken = std::mem::take(&mut *self.0.lock());
        woken.iter().for_each(|queue| queue.start(shared));
    }
}
