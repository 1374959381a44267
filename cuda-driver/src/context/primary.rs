//! The primary context of a device: opened once, and bound by every thread that calls the driver.

use std::{
    ffi::c_int,
    ops::RangeInclusive,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use cuda_core::protocol::{DeviceInfo, Fault, Result};
use parking_lot::Mutex;

use super::{
    bound::Bound, clock::DeviceClock, condition::ConditionKernel, host_pool::HostMemoryPool,
    named_pools::NamedPools, pool::MemoryPool, reclaim::ReclaimQueue, stream_reserve,
};
use crate::driver::{
    api::{Api, CAPTURE_RELAXED, ContextHandle, PoolProps, device_attribute as attribute},
    library::{self, Driver, Limits},
};

/// The state of one device of this process. Lives until the process ends.
#[derive(Debug)]
pub(crate) struct Primary {
    pub(crate) api: &'static Api,
    pub(crate) info: DeviceInfo,
    pub(crate) limits: Limits,
    /// The pool of stream-ordered memory, where the device supports one.
    pub(crate) pool: Option<MemoryPool>,
    /// The other pools of stream-ordered memory.
    pub(super) named_pools: NamedPools,
    /// Whether memory can be mapped to reserved addresses.
    pub(crate) has_mapped_memory: bool,
    /// The pool of pinned host memory, where the driver has one.
    pub(crate) host_pool: Option<HostMemoryPool>,
    /// The device's clock, unless the driver refused its kernel.
    pub(crate) clock: Option<DeviceClock>,
    /// The kernel that sets the conditions of loops, where the driver has loops.
    pub(crate) condition: Option<ConditionKernel>,
    /// From the most urgent to the least.
    pub(crate) priorities: RangeInclusive<i32>,
    pub(crate) context: ContextHandle,
    pub(crate) reclaim: ReclaimQueue,
    pub(crate) ordinal: u32,
    /// The driver's name for the device.
    pub(crate) device: c_int,
    /// Backends that are open or not yet torn down.
    backends: AtomicUsize,
    /// Written by `lost` alone.
    pub(super) lost: OnceLock<Fault>,
}

/// The devices whose context is retained: at most as many as there are devices.
static OPENED: Mutex<Vec<&'static Primary>> = Mutex::new(Vec::new());

impl Primary {
    /// The primary context of a device. The first call retains it, which takes a quarter of a second.
    pub(crate) fn of(driver: &Driver, ordinal: u32) -> Result<&'static Self> {
        let device = driver.device(ordinal)?;
        // Held while a context is created, so that it is created once.
        let mut opened = OPENED.lock();
        if let Some(primary) = opened.iter().find(|primary| primary.ordinal == ordinal) {
            return Ok(primary);
        }
        let api = driver.api;
        let mut primary = Self {
            api,
            info: driver.describe(ordinal)?,
            limits: driver.limits(device)?,
            pool: None,
            named_pools: NamedPools::default(),
            has_mapped_memory: driver.attribute(device, attribute::MAPPED_MEMORY)? != 0,
            host_pool: None,
            clock: None,
            condition: None,
            priorities: 0..=0,
            context: ContextHandle::NULL,
            reclaim: ReclaimQueue::default(),
            ordinal,
            device,
            backends: AtomicUsize::new(0),
            lost: OnceLock::new(),
        };
        // SAFETY: writes one handle; never released (rule 2).
        unsafe { api.primary_retain(&mut primary.context, device) }
            .map_err(|failed| library::driver_error(api, failed))?;
        primary.set_up(driver)?;
        let primary: &'static Self = Box::leak(Box::new(primary));
        primary.reclaim.attach(primary);
        opened.push(primary);
        Ok(primary)
    }

    /// The primary context of a device, if it is retained.
    pub(crate) fn opened(ordinal: u32) -> Option<&'static Self> {
        OPENED.lock().iter().find(|primary| primary.ordinal == ordinal).copied()
    }

    fn set_up(&mut self, driver: &Driver) -> Result<()> {
        let has_pools = driver.attribute(self.device, attribute::MEMORY_POOLS)? != 0;
        let bound = self.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two integers.
        unsafe { self.api.priority_range(&mut least, &mut greatest) }
            .map_err(|failed| self.error(failed))?;
        let pool = if has_pools {
            let pool = MemoryPool::create(self.api, &PoolProps::of(self.device), u64::MAX, &bound);
            Some(pool.map_err(|failed| self.error(failed))?)
        } else {
            None
        };
        let host_pool = self.create_host_pool(driver, &bound);
        // If this fails, streams are created as they are needed.
        _ = stream_reserve::reserve(self.api, &bound);
        self.clock = DeviceClock::load(self.api, &bound).ok();
        self.condition = ConditionKernel::load(self.api, &bound);
        drop(bound);
        (self.pool, self.host_pool, self.priorities) = (pool, host_pool, greatest..=least);
        Ok(())
    }

    /// A pool of host memory. Without one, every block is pinned and unpinned by itself.
    fn create_host_pool(&self, driver: &Driver, bound: &Bound) -> Option<HostMemoryPool> {
        // Older drivers do not know the attribute.
        driver.attribute(self.device, attribute::HOST_MEMORY_POOLS).ok().filter(|has| *has != 0)?;
        let devices = (0..driver.devices).map(|ordinal| driver.device(ordinal));
        let devices = devices.collect::<Result<Vec<_>>>().ok()?;
        HostMemoryPool::create(self.api, &devices, bound).ok()
    }

    /// Makes the context current on this thread until the result is dropped.
    #[inline]
    pub(crate) fn bind(&self) -> Result<Bound> {
        // SAFETY: the context is never released (rule 2).
        unsafe { Bound::to(self.api, self.context) }.map_err(|failed| self.state_error(failed))
    }

    /// Makes the context current on a thread of this library. The thread's calls then end no stream capture of another
    /// thread, whatever its mode.
    pub(crate) fn bind_own_thread(&self) -> Result<Bound> {
        let bound = self.bind()?;
        let mut mode = CAPTURE_RELAXED;
        // If this fails, captures are as sensitive as by default.
        // SAFETY: exchanges one integer with a setting of this thread.
        _ = unsafe { self.api.thread_capture_mode(&mut mode) };
        Ok(bound)
    }

    /// Counts a backend that is opened.
    pub(crate) fn backend_opened(&self) {
        self.backends.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a backend that is torn down. The last one returns the pools' free memory to the system. May block.
    pub(crate) fn backend_closed(&self, bound: &Bound) {
        if self.backends.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        if let Some(pool) = &self.pool {
            pool.trim(self.api, 0, bound);
        }
        if let Some(pool) = &self.host_pool {
            pool.trim_all(self.api, bound);
        }
    }
}
