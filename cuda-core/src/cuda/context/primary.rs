//! The primary context of a device: bound on entry, lost at most once.

use std::{
    ffi::c_int,
    ops::RangeInclusive,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use super::{
    bound::Bound, host_pool::HostMemoryPool, pool::MemoryPool, reclaim::ReclaimQueue, words::Words,
};
use crate::{
    cuda::driver::{
        api::{Api, CAPTURE_RELAXED, ContextHandle, StreamHandle, device_attribute as attribute},
        library::{self, Driver, Limits},
        status::{self, Failed, Meaning},
    },
    protocol::{DeviceInfo, Error, Fault, Result},
};

/// The state of one device of this process. Lives until the process ends.
#[derive(Debug)]
pub(crate) struct Primary {
    pub(crate) api: &'static Api,
    pub(crate) info: DeviceInfo,
    pub(crate) limits: Limits,
    /// The pool of stream-ordered memory, where the device supports one.
    pub(crate) pool: Option<MemoryPool>,
    /// The pool of pinned host memory, where the driver has one.
    pub(crate) host_pool: Option<HostMemoryPool>,
    /// Whether streams can write words of eight bytes.
    pub(crate) writes_words: bool,
    /// From the most urgent to the least.
    pub(crate) priorities: RangeInclusive<i32>,
    pub(crate) context: ContextHandle,
    pub(crate) reclaim: ReclaimQueue,
    pub(crate) words: Words,
    pub(crate) ordinal: u32,
    /// The driver's name for the device.
    pub(crate) device: c_int,
    /// Backends that are open or not yet torn down.
    backends: AtomicUsize,
    lost: OnceLock<Fault>,
}

/// The devices whose context is retained: at most as many as there are devices.
static OPENED: Mutex<Vec<&'static Primary>> = Mutex::new(Vec::new());

/// The state of a stream, as far as the driver tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamStatus {
    /// Everything that was enqueued before the query has run.
    Idle,
    /// Work is in flight.
    Busy,
    /// Foreign code is capturing the stream, so it cannot be queried.
    Unknown,
}

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
            host_pool: None,
            writes_words: driver.attribute(device, attribute::WRITES_WORDS)? != 0,
            priorities: 0..=0,
            context: ContextHandle::NULL,
            reclaim: ReclaimQueue::default(),
            words: Words::default(),
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
        self.words.reserve(self.api, &bound).map_err(|failed| self.error(failed))?;
        let pool = if has_pools {
            let pool = MemoryPool::create(self.api, self.device, &bound);
            Some(pool.map_err(|failed| self.error(failed))?)
        } else {
            None
        };
        let host_pool = self.create_host_pool(driver, &bound);
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

    /// An error if the device is lost. Costs one load.
    #[inline]
    pub(crate) fn alive(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(fault) => Err(self.lost_by(fault)),
        }
    }

    /// The fault itself if the device is lost, for questions about work that was in flight.
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

    /// Queries a stream that the caller holds. Not for a stream that foreign code may be capturing: the query would end
    /// the capture.
    #[inline]
    pub(crate) fn is_idle(&self, stream: StreamHandle, _: &Bound) -> Result<bool> {
        // SAFETY: the stream is held (rule 3).
        match unsafe { self.api.stream_query(stream) } {
            Ok(()) => Ok(true),
            Err(Failed { code: status::NOT_READY, .. }) => Ok(false),
            Err(failed) => Err(self.state_error(failed)),
        }
    }

    /// Queries a stream that the caller holds, unless it is being captured. An error means that the device is lost.
    pub(crate) fn status(&self, stream: StreamHandle, bound: &Bound) -> Result<StreamStatus> {
        let mut capturing = 0;
        // SAFETY: writes one integer; the stream is held.
        let asked = unsafe { self.api.stream_is_capturing(stream, &mut capturing) };
        if let Err(failed) = asked {
            return self.unknown_unless_lost(self.state_error(failed));
        }
        if capturing != 0 {
            return Ok(StreamStatus::Unknown);
        }
        match self.is_idle(stream, bound) {
            Ok(true) => Ok(StreamStatus::Idle),
            Ok(false) => Ok(StreamStatus::Busy),
            Err(error) => self.unknown_unless_lost(error),
        }
    }

    fn unknown_unless_lost(&self, error: Error) -> Result<StreamStatus> {
        if self.is_lost() { Err(error) } else { Ok(StreamStatus::Unknown) }
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
            pool.trim(self.api, bound);
        }
        if let Some(pool) = &self.host_pool {
            pool.trim_all(self.api, bound);
        }
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
    fault.clone().way_back("restart the process").into()
}
