//! The state of one device of this process: its primary context, which every thread binds before it calls the driver,
//! and its loss by a fault.

use std::{
    ffi::c_int,
    ops::RangeInclusive,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use cuda_core::protocol::{DeviceInfo, Error, Fault, FaultKind, Result};
use parking_lot::Mutex;

use super::{
    bound::Bound,
    device_kernels::{ConditionKernel, DeviceClock},
    memory_pools::{HostMemoryPool, MemoryPool, NamedPools},
    reclaim::ReclaimQueue,
};
use crate::driver::{
    api::{
        Api, CAPTURE_RELAXED, ContextHandle, EVENT_DISABLE_TIMING, EventHandle, PoolProps,
        STREAM_NON_BLOCKING, StreamHandle, device_attribute as attribute,
    },
    library::{self, Driver, Limits},
    status::{self, Failed, Meaning},
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
    pub(crate) named_pools: NamedPools,
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
    /// The fault that lost the device.
    lost: OnceLock<Fault>,
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
        _ = reserve_streams(self.api, &bound);
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

    /// Lets another device read and write the memory of all pools. Access between contexts does not cover it.
    pub(crate) fn grant_pools(&self, peer: c_int, bound: &Bound) -> Result<(), Failed> {
        let Some(default) = &self.pool else { return Ok(()) };
        default.grant(self.api, peer, bound)?;
        self.named_pools.grant(self.api, peer, bound)
    }

    /// Returns the free memory of all pools to the system. Takes about two milliseconds a pool, and waits for no
    /// kernel.
    #[cold]
    pub(crate) fn trim_pools(&self, bound: &Bound) {
        if let Some(default) = &self.pool {
            default.trim(self.api, 0, bound);
        }
        self.named_pools.trim(self.api, bound);
    }

    /// Creates an event without a time stamp, which makes recording cheap.
    pub(crate) fn new_event(&self, _: &Bound) -> Result<EventHandle> {
        let mut event = EventHandle::NULL;
        // SAFETY: writes one handle; the context is bound.
        unsafe { self.api.event_create(&mut event, EVENT_DISABLE_TIMING) }
            .map_err(|failed| self.error(failed))?;
        Ok(event)
    }
}

/// The loss of the device: a fault marks it as lost, at most once and for good. A failed call becomes an [`Error`]
/// here, because its status may be a fault that loses the device.
impl Primary {
    /// An error if the device is lost. Costs one load.
    #[inline]
    pub(crate) fn alive(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(fault) => Err(self.lost_by(fault)),
        }
    }

    /// The fault as an error if the device is lost. For queries about work that was in flight.
    #[inline]
    pub(crate) fn intact(&self) -> Result<()> {
        self.fault().map_or(Ok(()), Err)
    }

    /// The fault that lost the device, as an error.
    #[inline]
    pub(crate) fn fault(&self) -> Option<Error> {
        self.lost.get().map(fault_error)
    }

    /// Whether the device is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// The error of a failed call. A fault loses the device.
    #[cold]
    pub(crate) fn error(&self, failed: Failed) -> Error {
        match status::meaning(failed.code) {
            Meaning::Lost(fault) => self.lose(fault),
            Meaning::Call | Meaning::NotReady => library::driver_error(self.api, failed),
        }
    }

    /// The error of a failed call that only the device's state can fail. Names the fault, also if another thread met it
    /// first.
    #[cold]
    pub(crate) fn state_error(&self, failed: Failed) -> Error {
        match status::meaning_of_state(failed.code) {
            Meaning::Lost(fault) => {
                let lost = self.lose(fault);
                self.fault().unwrap_or(lost)
            }
            Meaning::Call | Meaning::NotReady => library::driver_error(self.api, failed),
        }
    }

    /// Loses the device, because the driver refused held work, which the backend had taken. Other work may depend on
    /// that work.
    #[cold]
    pub(crate) fn lose_held(&self, refused: Error) -> Error {
        if self.is_lost() {
            return refused;
        }
        let what = format!("the driver refused work that the backend had taken: {refused}");
        self.lose(Fault::new(FaultKind::Other, what))
    }

    /// Marks the device as lost. The first report of a fault returns the fault; later ones return that the device is
    /// lost.
    fn lose(&self, fault: Fault) -> Error {
        let error = fault_error(&fault);
        match self.lost.set(fault) {
            Ok(()) => error,
            Err(_) => self.alive().err().unwrap_or(error),
        }
    }

    #[cold]
    fn lost_by(&self, fault: &Fault) -> Error {
        let cause = format!("{fault}; this process cannot use the device any more, restart it");
        Error::DeviceLost { address: self.info.address.clone(), cause }
    }
}

#[cold]
fn fault_error(fault: &Fault) -> Error {
    fault.clone().recovery("restart the process").into()
}

/// The number of streams that can be alive at a time before the creation of another one may wait for kernels.
const STREAMS: usize = 128;

/// Creates and destroys [`STREAMS`] streams, so that the driver sets memory aside for them while nothing runs.
///
/// The driver takes memory for about 43 streams at a time, and waits for every running kernel whenever it takes more
/// (`benches/results/2026-11-23-h200-driver-waits.md`). A stream may be created inside a poll, which must not wait. The
/// driver keeps the memory of destroyed streams for later ones.
fn reserve_streams(api: &Api, _: &Bound) -> Result<(), Failed> {
    let mut streams = Vec::with_capacity(STREAMS);
    let mut create = || {
        let mut stream = StreamHandle::NULL;
        // SAFETY: writes one handle.
        unsafe { api.stream_create(&mut stream, STREAM_NON_BLOCKING, 0) }?;
        streams.push(stream);
        Ok(())
    };
    let created = (0..STREAMS).try_for_each(|_| create());
    for stream in streams {
        // SAFETY: created above, and nothing uses it.
        unsafe { api.stream_destroy(stream) }?;
    }
    created
}
