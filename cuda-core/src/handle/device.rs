//! Devices: opened once, shared by everything on them.

use std::sync::Arc;

use super::{Loading, MemoryWaiter, Module, PinnedBuffer, Pinning, Stream, stream::OnDrop};
use crate::{
    order::timeline::Timeline,
    protocol::{
        DeviceInfo, Element, Error, MemoryInfo, ModuleImage, Provider, Reply, Request, Result,
    },
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

    /// A new stream.
    ///
    /// # Errors
    /// An error of the backend.
    pub fn new_stream(&self) -> Result<Stream> {
        self.new_stream_with_priority(0)
    }

    /// A new stream. Lower priorities run first where the device knows them.
    ///
    /// # Errors
    /// An error of the backend.
    pub fn new_stream_with_priority(&self, priority: i32) -> Result<Stream> {
        self.0.reclaim_all();
        Ok(Stream::new(self.clone(), self.0.create_stream(priority)?, OnDrop::Destroy))
    }

    /// A stream for a while, from a pool of the device's own, since making one is slow. It goes back when the last
    /// handle is dropped, perhaps with work in flight.
    ///
    /// # Errors
    /// An error of the backend.
    pub fn lend_stream(&self, priority: i32) -> Result<Stream> {
        self.lend(priority, self.0.spare_streams.take(priority))
    }

    /// As [`lend_stream`](Device::lend_stream), but a stream that is known to be idle.
    ///
    /// # Errors
    /// An error of the backend.
    pub fn lend_idle_stream(&self, priority: i32) -> Result<Stream> {
        self.lend(priority, self.0.spare_streams.take_idle(priority))
    }

    fn lend(&self, priority: i32, spare: Option<Arc<Timeline>>) -> Result<Stream> {
        let timeline = spare.map_or_else(|| self.0.create_stream(priority), Ok)?;
        Ok(Stream::new(self.clone(), timeline, OnDrop::Recycle))
    }

    /// A value that a layer above keeps with this device, made when it is first asked for. There is one; none where it
    /// is of another type.
    pub fn attachment<T: Default + Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.attachment.get_or_init(|| Box::new(T::default())).downcast_ref()
    }

    /// Compiles and loads PTX. Blocks: a GPU's compiler may take a hundred milliseconds.
    ///
    /// # Errors
    /// [`Error::InvalidPtx`], [`Error::PtxTooNew`], or [`Error::LoadFailed`] with the compiler's log.
    pub fn load_ptx(&self, ptx: &str) -> Result<Module> {
        self.start_loading(ptx)?.wait()
    }

    /// As [`load_ptx`](Device::load_ptx) without blocking: the compiler runs on a thread of the device.
    ///
    /// # Errors
    /// [`Error::InvalidPtx`], if the kernels of the text cannot be listed.
    pub fn start_loading(&self, ptx: &str) -> Result<Loading> {
        self.0.reclaim_all();
        Loading::new(self, ptx, ModuleImage::Ptx(ptx.to_owned()))
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

    /// A waiter that is woken when memory of this device may have come back.
    pub fn memory_waiter(&self) -> MemoryWaiter {
        MemoryWaiter::new(self.clone())
    }

    /// A zeroed host buffer of `len` elements that this device copies from and to at full speed. May block for as long
    /// as the driver pins memory: inside a poll use [`start_pinning`](Device::start_pinning).
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn pinned<T: Element>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::new(self, len)
    }

    /// As [`pinned`](Device::pinned) for a download to overwrite: it holds the bytes of an earlier copy.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn landing_place<T: Element>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::uninitialised(self, len)
    }

    /// As [`landing_place`](Device::landing_place), without ever blocking: memory that has to be pinned first is pinned
    /// on a helper thread.
    pub fn start_pinning<T: Element>(&self, len: usize) -> Pinning<T> {
        Pinning::new(self, len)
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
