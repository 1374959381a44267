//! The handle of a device, the requests to it, and waits for its memory.

use std::{
    borrow::Cow,
    hash::{Hash, Hasher},
    sync::{Arc, Weak, atomic::Ordering},
    task::Context,
};

use crate::{
    protocol::{
        Capabilities, DeviceInfo, Error, GraphCacheInfo, MemoryInfo, Provider, Reply, Request,
        Result,
    },
    runtime::{Pending, device_core::DeviceCore, unexpected},
};

/// A device: a GPU, the CPU device, or a remote one. Clones are the same device.
#[derive(Clone)]
pub struct Device(Arc<DeviceCore>);

/// The work of a device that is not known to be complete, over all streams. Work of futures that were dropped counts
/// until it has run or was skipped. [`Capabilities`] has the limits for each stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Backlog {
    /// The number of submissions.
    pub submissions: u64,
    /// The bytes of host memory that are retained for copies among them.
    pub host_bytes: u64,
}

impl Device {
    /// Opens a device of `provider`. Every call opens a separate device with its own streams and memory, even for the
    /// same address. Objects of one cannot be used with another ([`Error::WrongDevice`]). `cuda_async::open` returns
    /// the same device for the same address.
    ///
    /// ```
    /// # use cuda_core::*;
    /// use cuda_cpu::CpuProvider;
    /// let (first, second) = (Device::open(&CpuProvider::default(), 0)?, Device::open(&CpuProvider::default(), 0)?);
    /// assert!(first != second); // each has its own memory and streams
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of [`Provider::open`].
    pub fn open(provider: &dyn Provider, ordinal: u32) -> Result<Self> {
        DeviceCore::open(provider, ordinal).map(Self)
    }

    /// Returns the description of this device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let info = device.info();
    /// println!("{} has {} MiB and {} multiprocessors", info.name, info.memory >> 20, info.multiprocessors);
    /// assert_eq!(info.address, "cpu");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn info(&self) -> &DeviceInfo {
        self.0.backend.info()
    }

    /// Returns the device memory in use and free, in bytes. Blocks until the device replies.
    ///
    /// Frees of dropped buffers are submitted first. On the CPU device such memory counts as free at once. On a GPU it
    /// may count as used until its stream reaches the free. Waits up to 1 s for frees that other threads are making.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let buffer = DeviceBuffer::<f32>::zeroed(&stream, 1024)?;
    /// assert!(device.memory()?.used >= 4096);
    /// drop(buffer);
    /// assert_eq!(device.memory()?.used, 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// An error of the backend.
    pub fn memory(&self) -> Result<MemoryInfo> {
        self.0.reclaim_all();
        self.0.wait_for_frees(); // another thread may have taken a dropped buffer, and not yet freed it
        let memory = self.0.request(Request::Memory, |reply| match reply {
            Reply::Memory(info) => Ok(info),
            other => Err(unexpected(&other)),
        });
        memory.wait()
    }

    /// Returns the work that was submitted to this device and is not known to be complete. Does not ask the device, and
    /// never blocks.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let buffer = DeviceBuffer::uploaded(&stream, device.pinned::<u8>(1 << 10)?)?;
    /// let backlog = device.backlog();
    /// println!("{} submissions, {} bytes of host memory", backlog.submissions, backlog.host_bytes);
    /// device.synchronize()?;
    /// assert_eq!(device.backlog(), Backlog::default());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn backlog(&self) -> Backlog {
        self.0.streams.all().iter().fold(Backlog::default(), |sum, stream| Backlog {
            submissions: sum.submissions + stream.in_flight(),
            host_bytes: sum.host_bytes + stream.retention.bytes() as u64,
        })
    }

    /// Blocks until everything that was submitted to this device before the call is complete.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let (one, other) = (device.new_stream()?, device.new_stream()?);
    /// let a = DeviceBuffer::<u32>::zeroed(&one, 8)?;
    /// let b = DeviceBuffer::<u32>::zeroed(&other, 8)?;
    /// device.synchronize()?; // the work of both streams is complete
    /// assert_eq!(one.in_flight() + other.in_flight(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that lost the device. Failed submissions are no error here; the stream handle that made them reports
    /// them. [`Error::Misuse`] inside the [output function](Device::set_output), and inside a waker of a leased device.
    pub fn synchronize(&self) -> Result<()> {
        self.0.streams.output.check_may_wait()?;
        let streams = self.0.streams.all();
        streams.iter().try_for_each(|stream| self.0.synchronize(stream, stream.published()))
    }

    /// Resets the device after a fault. Blocks until the running kernels have ended. In async code use
    /// [`start_reset`](Device::start_reset).
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let trap = device.load_ptx_blocking(".version 7.0 .target sm_70 .address_size 64 .visible .entry fails() { trap; }")?.function("fails")?;
    /// # // SAFETY: the kernel takes no memory.
    /// # unsafe { trap.launch(&stream, LaunchConfig::new(1, 1), &Arguments::new()) }?;
    /// assert!(stream.synchronize().is_err()); // a kernel has faulted
    /// assert!(DeviceBuffer::<u8>::zeroed(&stream, 1).is_err()); // the device is lost
    /// device.reset()?;
    /// assert!(DeviceBuffer::<u8>::zeroed(&stream, 1).is_ok());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a GPU: after a fault the process cannot use it any more and has to be restarted.
    /// [`Error::Misuse`] inside the [output function](Device::set_output), and inside a waker of a leased device.
    pub fn reset(&self) -> Result<()> {
        self.0.streams.check_may_wait()?;
        let reset = self.start_reset().wait();
        self.0.reclaim_all();
        reset
    }

    /// Starts to reset the device after a fault, without blocking. The reply arrives when the running kernels have
    /// ended. Work that is submitted after this call runs.
    ///
    /// Memory and modules are kept. Work that had not begun is skipped, and its futures fail with the fault. Buffers
    /// that this work or the faulted kernel would have written have lost their contents: a read is
    /// [`Error::ContentsLost`] until the buffer is overwritten as a whole.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let trap = device.load_ptx_blocking(".version 7.0 .target sm_70 .address_size 64 .visible .entry fails() { trap; }")?.function("fails")?;
    /// # // SAFETY: the kernel takes no memory.
    /// # unsafe { trap.launch(&stream, LaunchConfig::new(1, 1), &Arguments::new()) }?;
    /// assert!(stream.synchronize().is_err()); // a kernel has faulted
    /// let reset = device.start_reset(); // `poll` in a task, or `wait`
    /// reset.wait()?;
    /// assert!(DeviceBuffer::<u8>::zeroed(&stream, 1).is_ok());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn start_reset(&self) -> Pending<()> {
        self.0.request(Request::Reset, |reply| match reply {
            Reply::Reset { .. } => Ok(()),
            other => Err(unexpected(&other)),
        })
    }

    /// Passes text that kernels print on this device to `print`, instead of standard output. Applies to text that
    /// arrives from now on. `print` runs on a thread of the device, or on several at a time. A wait for this device
    /// inside it is [`Error::Misuse`], because the kernel that prints ends only after `print`. `print` should return
    /// soon: while it runs, a leased device learns of no progress, and a lease is not renewed.
    ///
    /// A GPU's driver writes such text to standard output itself: there `print` is never called.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// use std::sync::{Arc, Mutex};
    /// let printed = Arc::new(Mutex::new(String::new()));
    /// let log = printed.clone();
    /// device.set_output(move |text| log.lock().unwrap().push_str(text)); // from now on
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set_output(&self, print: impl Fn(&str) + Send + Sync + 'static) {
        self.0.streams.output.set(Arc::new(print));
    }

    /// Returns the counts of the graph cache. All counts are 0 on devices without such a cache. A GPU launches work
    /// that repeats as a graph, which takes a fraction of the time of separate launches. The cache learns the work that
    /// an operation submits in one poll or in one blocking call. When the same work comes again, the cache holds up to
    /// 64 submissions and launches them together. It holds them until the poll or the call ends, at the latest.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let cache = device.graph_cache();
    /// println!("{cache:?}"); // all counts are 0 on the CPU device, which has no such cache
    /// # Ok::<(), Error>(())
    /// ```
    pub fn graph_cache(&self) -> GraphCacheInfo {
        self.core().backend.graph_cache()
    }

    /// Turns the graph cache on or off, for later work. By default it is on if the device has a graph cache.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// device.set_graph_cache(false); // every launch is one call of the driver from now on
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set_graph_cache(&self, on: bool) {
        let has_cache = self.core().capabilities.graph_cache;
        self.core().graph_cache.store(on && has_cache, Ordering::Relaxed);
    }

    /// Returns the limits and properties of this device's backend.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let limits = device.capabilities();
    /// assert!(limits.submissions_in_flight > 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    /// Returns a handle that does not keep the device open.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let weak = device.downgrade();
    /// assert!(!weak.is_closed());
    /// drop(device); // the last handle
    /// assert!(weak.is_closed());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn downgrade(&self) -> WeakDevice {
        WeakDevice(Arc::downgrade(&self.0))
    }

    #[inline]
    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.0
    }

    /// Checks that an object of `other` may be used here.
    #[inline]
    pub(super) fn check_same(&self, what: &'static str, other: &Device) -> Result<()> {
        if self == other { Ok(()) } else { Err(wrong_device(what, other, self)) }
    }

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

/// The error for an object of one device that is used on another one.
#[cold]
pub(super) fn wrong_device(
    what: impl Into<Cow<'static, str>>,
    lives_on: &Device,
    used_on: &Device,
) -> Error {
    let [lives_on, used_on] = [lives_on, used_on].map(|device| device.info().address.clone());
    Error::WrongDevice { what: what.into(), lives_on, used_on }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

/// Equal devices have equal hashes, so a device can be the key of a map.
impl Hash for Device {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Writes the name and the address of the device, such as `NVIDIA H200 (cuda:0)`.
impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DeviceInfo { name, address, .. } = self.info();
        write!(f, "{name} ({address})")
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.info().address)
    }
}

/// A handle of a [`Device`] that does not keep it open, for caches whose entries should not outlive their device.
///
/// Streams, buffers and modules keep their device open, also while only they use it.
#[derive(Clone)]
pub struct WeakDevice(Weak<DeviceCore>);

impl WeakDevice {
    /// Returns the device, if it is still open.
    pub fn upgrade(&self) -> Option<Device> {
        self.0.upgrade().map(Device)
    }

    /// Returns whether the device is closed. If not, it may be closed immediately afterwards.
    pub fn is_closed(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Returns whether this is a handle of `device`.
    pub fn is(&self, device: &Device) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&device.0))
    }
}

impl std::fmt::Debug for WeakDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.upgrade() {
            Some(device) => write!(f, "WeakDevice({})", device.info().address),
            None => f.write_str("WeakDevice(closed)"),
        }
    }
}

/// A waiter for device memory that may have become free. Dropping it removes its waker.
pub struct MemoryWaiter {
    device: Device,
    key: Option<u64>,
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
