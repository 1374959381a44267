//! Waiting for device memory to come back.

use std::task::Context;

use super::device::Device;

/// Waits for memory of a device to come back. Dropping it forgets its waker.
pub struct MemoryWaiter {
    device: Device,
    key: Option<u64>,
}

impl Device {
    /// A waiter that is woken when memory of this device may have come back.
    pub fn memory_waiter(&self) -> MemoryWaiter {
        MemoryWaiter { device: self.clone(), key: None }
    }
}

impl MemoryWaiter {
    /// Wakes the task once, when memory is freed or some work has ended from now on. It does not say how much there is.
    pub fn register(&mut self, task: &Context<'_>) {
        let waiters = &self.device.core().memory_waiters;
        self.key = Some(waiters.enter(self.key, task.waker().clone()));
    }
}

impl Drop for MemoryWaiter {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.device.core().memory_waiters.leave(key);
        }
    }
}
