//! Memory pools: the sources of the memory of buffers.
//!
//! Every device has a default pool. A program that makes more of them can see and limit the memory of each of its
//! parts, and decide how much free memory each part keeps.

use std::sync::Arc;

use crate::{
    handle::{
        device::Device,
        stream::{Allocation, MemoryRequest, Stream, check_pool},
    },
    protocol::{Control, Name, PoolChange, PoolId, PoolMemory, PoolSpec, Reply, Request, Result},
    runtime::{PoolCore, unexpected},
};

/// The properties of a new [`MemoryPool`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolOptions {
    name: Option<Name>,
    release_threshold: u64,
    limit: u64,
    is_managed: bool,
}

impl PoolOptions {
    /// Creates the options of a pool without a limit, which keeps all freed memory for its next allocations.
    pub fn new() -> Self {
        Self { name: None, release_threshold: u64::MAX, limit: u64::MAX, is_managed: false }
    }

    /// Allocates the buffers of the pool in CUDA managed memory, which may exceed the memory of the GPU. The driver
    /// moves its pages between the GPU and the host when a kernel or a copy uses them. The buffers do not count for
    /// [`Device::memory`](crate::Device::memory). This needs a driver for CUDA 13.0 or newer.
    ///
    /// The CPU device and a leased device ignore this and create an ordinary pool.
    #[must_use]
    pub fn managed(mut self) -> Self {
        self.is_managed = true;
        self
    }

    /// Names the pool, for statistics and error messages. The name has no other effect.
    #[must_use]
    pub fn named(mut self, name: impl Into<Name>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the bytes that the pool keeps reserved from the system. Freed memory beyond them returns to the system, at
    /// the latest at the next synchronization after the free has run. The default keeps everything, which makes
    /// allocations fast.
    #[must_use]
    pub fn release_threshold(mut self, bytes: u64) -> Self {
        self.release_threshold = bytes;
        self
    }

    /// Sets the maximum number of bytes that buffers of the pool use at a time. The default is the memory of the
    /// device. A buffer counts until it is dropped and its free was submitted. All sizes of device memory are `u64`, as
    /// those of [`MemoryInfo`](crate::MemoryInfo) and [`PoolStatistics`].
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The memory of a pool, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// The name of the pool. `default` for the default pool.
    pub name: Name,
    /// The bytes of live allocations of this device handle.
    pub used: u64,
    /// The largest number of used bytes so far.
    pub used_peak: u64,
    /// The bytes that the pool has reserved from the system: in use, and free for its next allocations. On a GPU these
    /// are whole blocks of the driver, and frees that have not run count.
    pub reserved: u64,
    /// The largest number of reserved bytes so far.
    pub reserved_peak: u64,
    /// The bytes that the pool keeps reserved: see [`PoolOptions::release_threshold`].
    pub release_threshold: u64,
    /// The maximum number of used bytes: see [`PoolOptions::limit`]. `None` if the pool has no limit of its own.
    pub limit: Option<u64>,
}

/// A pool of device memory. Clones are the same pool.
///
/// A buffer keeps its pool: dropping the last handle drops the pool after its last buffer was freed. Other pools can
/// use the free memory of a pool: before an allocation fails, the device returns the free memory of all pools to the
/// system.
///
/// ```
/// # use cuda_core::{Device, DeviceBuffer, MemoryPool, PoolOptions};
/// # fn pool_of(device: &Device) -> cuda_core::Result<()> {
/// let options = PoolOptions::new().named("activations").release_threshold(1 << 30).limit(4 << 30);
/// let pool = MemoryPool::new(device, options)?;
/// let stream = device.new_stream()?;
/// let buffer = DeviceBuffer::<f32>::uninitialized_in(&stream, &pool, 1024)?;
/// assert_eq!(pool.statistics()?.used, 4096);
/// drop(buffer);
/// pool.trim(0)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryPool {
    device: Device,
    /// `None` for the default pool.
    pool: Option<Arc<PoolCore>>,
}

impl MemoryPool {
    /// Creates a pool.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the device has no pools, or if the pool is
    /// [managed](PoolOptions::managed) and the driver has no pools of managed memory.
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if it has
    /// [as many as it can have](crate::protocol::Capabilities::pools). Otherwise an error of the device.
    pub fn new(device: &Device, options: PoolOptions) -> Result<Self> {
        let PoolOptions { name, release_threshold, limit, is_managed } = options;
        let spec = PoolSpec::new(release_threshold).managed(is_managed);
        let pool = device.core().create_pool(name, limit, spec)?;
        Ok(Self { device: device.clone(), pool: Some(pool) })
    }

    /// Returns the device of this pool.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the name of the pool.
    pub fn name(&self) -> Name {
        self.pool.as_ref().map_or_else(|| "default".into(), |pool| pool.name.clone())
    }

    /// Returns whether this is the default pool of its device.
    pub fn is_default(&self) -> bool {
        self.pool.is_none()
    }

    /// Returns the memory of the pool now. Blocks until the device replies. Frees of dropped buffers are submitted
    /// first. Waits up to 1 s for those that other threads are making.
    ///
    /// On a GPU all handles of the device in this process share its default pool. Its reserved bytes are those of all
    /// of them.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the device has no pools, or an error of the device.
    pub fn statistics(&self) -> Result<PoolStatistics> {
        let core = self.device.core();
        core.reclaim_all();
        core.wait_for_frees(); // another thread may have taken a dropped buffer, and still count it
        let memory = self.ask(Request::PoolMemory { pool: self.id() })?;
        let charge = self.pool.as_ref().map_or(&core.charge, |pool| &pool.charge);
        let (used, used_peak) = charge.own();
        let limit = self.pool.as_ref().map(|pool| pool.charge.quota());
        Ok(PoolStatistics {
            name: self.name(),
            used,
            used_peak,
            // The device counts an allocation later than the handle, so its number may lag behind.
            reserved: memory.reserved.max(used),
            reserved_peak: memory.reserved_peak.max(used_peak),
            release_threshold: memory.release_threshold,
            limit: limit.filter(|limit| *limit < u64::MAX),
        })
    }

    /// Sets the peaks to the bytes that are used and reserved now.
    ///
    /// # Errors
    /// An error of the device.
    pub fn reset_peaks(&self) -> Result<()> {
        self.change(PoolChange::ResetPeak)?;
        let core = self.device.core();
        self.pool.as_ref().map_or(&core.charge, |pool| &pool.charge).reset_peak();
        Ok(())
    }

    /// Sets the bytes that the pool keeps reserved: see [`PoolOptions::release_threshold`].
    ///
    /// # Errors
    /// An error of the device.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.change(PoolChange::ReleaseThreshold(bytes))
    }

    /// Allocates memory of the pool in the order of `stream`, as [`Stream::allocate`] does.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let pool = MemoryPool::new(&device, PoolOptions::new().named("scratch"))?;
    /// let allocation = pool.allocate(&stream, 100)?;
    /// assert_eq!(pool.statistics()?.used, 100);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), [`Error::OutOfMemory`](crate::Error::OutOfMemory), or an
    /// error of the device.
    pub fn allocate(&self, stream: &Stream, bytes: u64) -> Result<Arc<Allocation>> {
        check_pool(stream.device(), &self.device, self.pool.as_ref())?;
        MemoryRequest { stream, pool: self.pool.as_ref(), bytes }.allocate()
    }

    /// Returns free memory of the pool to the system, until at most `keep` bytes are reserved. Returns the bytes that
    /// are reserved afterwards. Memory in use stays reserved, and so does memory whose free has not run. Blocks until
    /// the device replies.
    ///
    /// # Errors
    /// An error of the device. [`Error::Misuse`](crate::Error::Misuse) inside the [output function](Device::set_output),
    /// and inside a waker of a leased device.
    pub fn trim(&self, keep: u64) -> Result<u64> {
        self.device.core().reclaim_all();
        self.ask(Request::TrimPool { pool: self.id(), keep }).map(|memory| memory.reserved)
    }

    fn id(&self) -> PoolId {
        self.pool.as_ref().map_or(PoolId::DEFAULT, |pool| pool.id)
    }

    fn ask(&self, request: Request) -> Result<PoolMemory> {
        self.device.core().streams.check_may_wait()?;
        let answered = self.device.core().request(request, |reply| match reply {
            Reply::Pool(memory) => Ok(memory),
            other => Err(unexpected(&other)),
        });
        answered.wait()
    }

    fn change(&self, change: PoolChange) -> Result<()> {
        let control = Control::ChangePool { id: self.id(), change };
        // SAFETY: the control frees, retires, drops and unloads nothing.
        unsafe { self.device.core().backend.control(control) }
    }
}

impl Device {
    /// Returns the default pool of this device. Allocations that name no other pool come from it.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let buffer = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
    /// assert_eq!(device.default_pool().statistics()?.used, 100);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn default_pool(&self) -> MemoryPool {
        MemoryPool { device: self.clone(), pool: None }
    }
}

impl Stream {
    /// Returns a handle of this stream whose allocations come from `pool`. Like a clone, the new handle counts no
    /// earlier submissions. Handles that are made from it allocate from the pool too.
    ///
    /// In a recording, the memory comes from the pool when it is recorded, and later replays use that memory.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let pool = MemoryPool::new(&device, PoolOptions::new().named("scratch"))?;
    /// let pooled = stream.in_pool(&pool)?; // the same stream
    /// let x = DeviceBuffer::<u8>::zeroed(&pooled, 100)?;
    /// assert_eq!(pool.statistics()?.used, 100);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice).
    pub fn in_pool(&self, pool: &MemoryPool) -> Result<Stream> {
        check_pool(self.device(), &pool.device, pool.pool.as_ref())?;
        Ok(allocating_in(self, pool))
    }
}

/// Returns a handle of a stream as [`Stream::in_pool`] does, for a pool of any device. If it is one of another device,
/// allocations fail.
pub fn allocating_in(stream: &Stream, pool: &MemoryPool) -> Stream {
    stream.with_pool(pool.device.clone(), pool.pool.clone())
}

impl PartialEq for MemoryPool {
    fn eq(&self, other: &Self) -> bool {
        self.device == other.device && self.id() == other.id()
    }
}

impl Eq for MemoryPool {}

impl std::fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryPool({:?} on {})", self.name(), self.device.info().address)
    }
}
