//! Tasks that wait until device memory may have become free.
//!
//! # Which thread may touch which field
//! Wakers are cloned, dropped and woken without the lock. The `Drop` of a buffer wakes no task, because it may run on
//! any thread. The next submission or notice frees the memory and wakes the waiting tasks.

use std::task::Waker;

use crate::sync::{
    Mutex, WakerSet,
    atomic::{AtomicBool, Ordering},
};

#[derive(Default)]
pub(crate) struct MemoryWaiters {
    waiting: Mutex<Waiting>,
    /// Whether any task waits. Readable without the lock.
    any: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    wakers: WakerSet<u64>,
    next: u64,
}

impl MemoryWaiters {
    /// Returns whether a task waits for memory.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Wakes all waiting tasks, because memory may have become free.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.has_any() {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        let woken = {
            let mut waiting = self.waiting.lock();
            self.any.store(false, Ordering::Release);
            waiting.wakers.take_all()
        };
        drop(woken);
    }

    /// Enters a waker, in the place of an earlier one with this key. Returns its key.
    pub(crate) fn enter(&self, key: Option<u64>, waker: Waker) -> u64 {
        let mut waiting = self.waiting.lock();
        let key = key.unwrap_or_else(|| {
            waiting.next += 1;
            waiting.next
        });
        let previous = waiting.wakers.insert(key, waker);
        self.any.store(true, Ordering::Release);
        drop(waiting);
        drop(previous);
        key
    }

    pub(crate) fn leave(&self, key: u64) {
        let waker = self.waiting.lock().wakers.remove(&key);
        drop(waker);
    }
}
