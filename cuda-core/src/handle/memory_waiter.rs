//! Waits for free device memory.

use std::task::Context;

use super::device::Device;

/// A waiter for device memory that may have become free. Dropping it removes its waker.
pub struct MemoryWaiter {
    device: Device,
    key: Option<u64>,
}

impl Device {
    /// Creates a waiter that is woken when memory of this device may have become free.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// use std::task::{Context, Waker};
    /// let mut waiter = device.memory_waiter();
    /// // In a task: register the waker, try to allocate once more, and return pending if that fails.
    /// waiter.register(&Context::from_waker(Waker::noop()));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn memory_waiter(&self) -> MemoryWaiter {
        MemoryWaiter { device: self.clone(), key: None }
    }
}

impl MemoryWaiter {
    /// Registers `task` to be woken once, when the device takes or completes work after this call, which frees dropped
    /// memory. The drop of a buffer alone wakes no task. The wake does not mean that enough memory is free: try the
    /// allocation again, and register again if it fails.
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
