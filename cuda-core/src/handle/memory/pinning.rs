//! A request for a pinned buffer.

use std::{
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::pinned::{PinnedBuffer, bytes_of};
use crate::{
    handle::device::Device,
    protocol::{Element, Error, Result},
    runtime::Lease,
    sync::Receiver,
};

/// A request for a pinned buffer. If a GPU has no idle block of that size, a helper thread pins a new one.
pub struct Pinning<T> {
    device: Device,
    len: usize,
    /// Present once the helper thread pins memory.
    job: Option<Receiver<Result<Arc<Lease>>>>,
    /// Whether the result of the job was taken.
    taken: bool,
    element: PhantomData<T>,
}

impl Device {
    /// Starts to allocate a buffer as [`pinned_uninitialized`](Device::pinned_uninitialized) does, without blocking. If
    /// a GPU has no idle block of that size, a helper thread pins a new one.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let mut pinning = device.start_pinning::<f32>(1 << 10); // a helper thread pins the memory of a GPU
    /// let host = pinning.wait()?; // or `poll` it in a task
    /// assert_eq!(host.len(), 1 << 10);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn start_pinning<T: Element>(&self, len: usize) -> Pinning<T> {
        Pinning { device: self.clone(), len, job: None, taken: false, element: PhantomData }
    }
}

impl<T: Element> Pinning<T> {
    /// Polls for the buffer. It holds the bytes of an earlier copy.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`]; [`Error::Host`] if the helper thread cannot be started or the backend panicked on
    /// it; [`Error::AlreadyEnded`] after the result of the helper thread was taken.
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<PinnedBuffer<T>>> {
        if self.taken {
            return Poll::Ready(Err(Error::AlreadyEnded));
        }
        if self.job.is_none() {
            let bytes = bytes_of::<T>(self.len)?;
            let core = self.device.core();
            if let Some(idle) = core.host.take_idle(bytes) {
                return Poll::Ready(Ok(PinnedBuffer::of_lease(idle, self.len)));
            }
            if !core.capabilities.slow_host_blocks {
                return Poll::Ready(self.wait());
            }
            self.job = Some(self.start(bytes)?);
        }
        let Some(job) = &mut self.job else { return Poll::Ready(Err(Error::AlreadyEnded)) };
        let lease = ready!(job.poll(task)).unwrap_or_else(|| Err(panicked()));
        self.taken = true;
        Poll::Ready(lease.map(|lease| PinnedBuffer::of_lease(lease, self.len)))
    }

    /// Allocates the buffer on the calling thread. This may block while the driver pins memory.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn wait(&mut self) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::uninitialized(&self.device, self.len)
    }

    #[cold]
    fn start(&self, bytes: usize) -> Result<Receiver<Result<Arc<Lease>>>> {
        let core = self.device.core();
        let job = {
            let core = core.clone();
            move || core.host.take(&*core.backend, bytes)
        };
        let what = "failed to start the helper thread of the device";
        core.helper.start(job).map_err(|error| Error::host(what, &error))
    }
}

#[cold]
fn panicked() -> Error {
    let what = "pinning host memory on the helper thread of the device".into();
    Error::Host { what, detail: "the backend panicked; report this bug of the backend".into() }
}

impl<T> std::fmt::Debug for Pinning<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinning({} x {})", self.len, std::any::type_name::<T>())
    }
}
