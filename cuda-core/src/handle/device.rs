//! Devices: opened once, shared by everything on them.

use std::sync::Arc;

use crate::{
    protocol::{DeviceInfo, Error, MemoryInfo, Provider, Reply, Request, Result},
    runtime::{Pending, device_core::DeviceCore, unexpected},
};

/// A device: a GPU, the CPU device, or a remote one. Clones are the same device.
#[derive(Clone)]
pub struct Device(Arc<DeviceCore>);

impl Device {
    /// Opens a device of `provider`. Every call makes a device of its own, with its own streams and memory, also
    /// where the address is the same: objects of one cannot be used with the other ([`Error::WrongDevice`]).
    /// `cuda_async::open` gives the same one every time.
    ///
    /// # Errors
    /// The error of [`Provider::open`].
    pub fn open(provider: &dyn Provider, ordinal: u32) -> Result<Self> {
        DeviceCore::open(provider, ordinal).map(Self)
    }

    /// The description of this device.
    pub fn info(&self) -> &DeviceInfo {
        self.0.backend.info()
    }

    /// A value that a layer above keeps with this device, made when it is first asked for. There is one; none where it
    /// is of another type.
    pub fn attachment<T: Default + Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.attachment.get_or_init(|| Box::new(T::default())).downcast_ref()
    }

    /// Memory in use and free. Memory that was dropped is freed first, in stream order; whether it counts as used until
    /// its stream has run everything before it depends on the backend (on the CPU device it does not). Blocks.
    ///
    /// # Errors
    /// An error of the backend.
    pub fn memory(&self) -> Result<MemoryInfo> {
        self.0.reclaim_all();
        let memory = self.0.request(Request::Memory, |reply| match reply {
            Reply::Memory(info) => Ok(info),
            other => Err(unexpected(&other)),
        });
        memory.wait()
    }

    /// Blocks until every stream of this device has run what it has.
    ///
    /// # Errors
    /// The error that lost the device. Failures of submissions are reported where these are waited for.
    pub fn synchronize(&self) -> Result<()> {
        let streams = self.0.streams.all();
        streams.iter().try_for_each(|it| self.0.synchronize(it, it.published()))
    }

    /// Brings the device back after a fault. Blocks until the kernels that run have ended: in async code poll
    /// [`start_reset`](Device::start_reset).
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a GPU: there a fault ends CUDA for the whole process.
    pub fn reset(&self) -> Result<()> {
        let reset = self.start_reset().wait();
        self.0.reclaim_all();
        reset
    }

    /// Brings the device back after a fault, without blocking. Memory and modules stay. Work that had not begun is
    /// skipped, and its futures fail with the fault. Running kernels end by themselves. Buffers that skipped or faulted work
    /// would have written have lost their contents: reading one is [`Error::ContentsLost`], until it is overwritten whole or
    /// dropped. Work that is submitted after this call runs.
    pub fn start_reset(&self) -> Pending<()> {
        self.0.request(Request::Reset, |reply| match reply {
            Reply::Reset { .. } => Ok(()),
            other => Err(unexpected(&other)),
        })
    }

    /// Whether the calling thread is waking tasks of this device, as it does inside a waker. Waiting for a wake-up of
    /// this device would then never end.
    pub fn delivers_here(&self) -> bool {
        self.0.streams.delivers_here()
    }

    /// Submissions that a stream of this device may have in flight. More should wait.
    pub fn submissions_in_flight(&self) -> u64 {
        self.0.capabilities.submissions_in_flight
    }

    #[inline]
    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.0
    }

    /// Checks that an object of `other` may be used here.
    #[inline]
    pub(super) fn check_same(&self, what: &'static str, other: &Device) -> Result<()> {
        if self == other { Ok(()) } else { Err(self.wrong_device(what, other)) }
    }

    #[cold]
    fn wrong_device(&self, what: &'static str, other: &Device) -> Error {
        let [lives_on, used_on] = [other, self].map(|device| device.info().address.clone());
        Error::WrongDevice { what: what.into(), lives_on, used_on }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.info().address)
    }
}
