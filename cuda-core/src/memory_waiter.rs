//! Who waits for device memory to come back.
//!
//! # Who may touch what
//! Wakers are cloned, dropped and woken without the lock. Nobody is woken by a `Drop`, which may run anywhere: memory
//! that was dropped comes back with the next submission or notice, which wake.

use std::{
    collections::BTreeMap,
    task::{Context, Waker},
};

use crate::{
    Device,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    wake_each,
};

#[derive(Default)]
pub(crate) struct MemoryWaiters {
    waiting: Mutex<Waiting>,
    /// Whether there are any: a look at it need not lock.
    any: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

impl MemoryWaiters {
    /// Memory may have come back.
    pub(crate) fn wake(&self) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let woken = {
            let mut waiting = self.waiting.lock();
            self.any.store(false, Ordering::Release);
            std::mem::take(&mut waiting.wakers)
        };
        wake_each(woken.into_values());
    }
}

/// Waits for memory of a device to come back. Dropping it forgets its waker.
pub struct MemoryWaiter {
    device: Device,
    key: Option<u64>,
}

impl MemoryWaiter {
    pub(crate) fn new(device: Device) -> Self {
        Self { device, key: None }
    }

    /// Wakes the task once, when something is freed or some work has ended from now on. That says nothing of how
    /// much there is.
    pub fn register(&mut self, task: &Context<'_>) {
        let waker = task.waker().clone();
        let waiters = &self.device.inner().memory_waiters;
        let mut waiting = waiters.waiting.lock();
        let key = *self.key.get_or_insert_with(|| {
            waiting.next += 1;
            waiting.next
        });
        let previous = waiting.wakers.insert(key, waker);
        waiters.any.store(true, Ordering::Release);
        drop(waiting);
        drop(previous);
    }
}

impl Drop for MemoryWaiter {
    fn drop(&mut self) {
        let waiters = &self.device.inner().memory_waiters;
        let waker = self.key.and_then(|key| waiters.waiting.lock().wakers.remove(&key));
        drop(waker);
    }
}
