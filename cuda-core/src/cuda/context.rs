//! A device's primary context: bound on entry, lost at most once.

use std::{marker::PhantomData, ops::RangeInclusive, sync::OnceLock};

use parking_lot::Mutex;

use super::{
    api::{
        Api, ContextHandle, POOL_INTERNAL_DEPENDENCIES, POOL_RELEASE_THRESHOLD, PoolHandle,
        device_attribute as attribute,
    },
    discard::{Stream, Trash},
    driver::{self, Driver, Limits},
    status::{self, Failed, Meaning},
    word::Words,
};
use crate::{DeviceInfo, Error, Fault, Result};

/// What there is once per device and process; lives until the process ends.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) api: &'static Api,
    pub(super) info: DeviceInfo,
    pub(super) limits: Limits,
    /// Whether memory can be allocated in stream order.
    pub(super) pools: bool,
    /// If so, from this pool.
    pool: PoolHandle,
    /// Whether streams can write words of eight bytes.
    pub(super) writes_words: bool,
    /// From the most urgent to the least.
    pub(super) priorities: RangeInclusive<i32>,
    pub(super) context: ContextHandle,
    pub(super) trash: Trash,
    pub(super) words: Words,
    pub(super) ordinal: u32,
    lost: OnceLock<Fault>,
}

/// The devices whose context is retained; as many as there are devices at most.
static OPENED: Mutex<Vec<&'static Primary>> = Mutex::new(Vec::new());

impl Primary {
    /// The primary context of a device, retained by the first call.
    pub(super) fn of(driver: &Driver, ordinal: u32) -> Result<&'static Self> {
        let device = driver.device(ordinal)?;
        // Held while a context is made (a quarter of a second), so that it is made once.
        let mut opened = OPENED.lock();
        if let Some(primary) = opened.iter().find(|primary| primary.ordinal == ordinal) {
            return Ok(primary);
        }
        let api = driver.api;
        let mut primary = Self {
            api,
            info: driver.describe(ordinal)?,
            limits: driver.limits(device)?,
            pools: driver.ask(device, attribute::MEMORY_POOLS)? != 0,
            pool: PoolHandle::NULL,
            writes_words: driver.ask(device, attribute::WRITES_WORDS)? != 0,
            priorities: 0..=0,
            context: ContextHandle::NULL,
            trash: Trash::default(),
            words: Words::default(),
            ordinal,
            lost: OnceLock::new(),
        };
        // SAFETY: writes one handle; never released (rule 2).
        unsafe { api.primary_retain(&mut primary.context, device) }
            .map_err(|failed| driver::driver_error(api, failed))?;
        primary.set_up(device)?;
        let primary: &'static Self = Box::leak(Box::new(primary));
        opened.push(primary);
        Ok(primary)
    }

    /// The primary context of a device, if it was retained.
    pub(super) fn opened(ordinal: u32) -> Option<&'static Self> {
        OPENED.lock().iter().find(|primary| primary.ordinal == ordinal).copied()
    }

    fn set_up(&mut self, device: i32) -> Result<()> {
        let bound = self.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two integers.
        unsafe { self.api.priority_range(&mut least, &mut greatest) }
            .map_err(|failed| self.error(failed))?;
        if self.pools {
            let mut keep = u64::MAX;
            // Otherwise every synchronisation gives the pool's free memory back to the system, and
            // the next allocation costs a hundred times as much.
            // SAFETY: the attribute's value is a 64-bit integer; the device owns the pool.
            unsafe {
                self.api.default_pool(&mut self.pool, device).and_then(|()| {
                    self.api.pool_set(self.pool, POOL_RELEASE_THRESHOLD, (&raw mut keep).cast())
                })
            }
            .and_then(|()| self.set_internal_waits(false))
            .map_err(|failed| self.error(failed))?;
        }
        drop(bound);
        self.priorities = greatest..=least;
        Ok(())
    }

    /// Whether an allocation may take memory that another stream has yet to free, and then waits for what that
    /// stream has.
    fn set_internal_waits(&self, allowed: bool) -> Result<(), Failed> {
        let mut allowed = i32::from(allowed);
        // SAFETY: the attribute's value is a 32-bit integer; the device owns the pool.
        unsafe {
            self.api.pool_set(self.pool, POOL_INTERNAL_DEPENDENCIES, (&raw mut allowed).cast())
        }
    }

    /// Runs `allocate` so that it may wait for other streams: where there is no other memory.
    pub(super) fn with_internal_waits<T>(
        &self,
        _: &Bound,
        allocate: impl FnOnce() -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        if !self.pools {
            return allocate();
        }
        // One at a time: none takes back what another one has allowed.
        static SCARCE: Mutex<()> = Mutex::new(());
        let _scarce = SCARCE.lock();
        self.set_internal_waits(true)?;
        let allocated = allocate();
        self.set_internal_waits(false)?;
        allocated
    }

    /// Makes the context current on this thread for as long as the result lives.
    #[inline]
    pub(super) fn bind(&self) -> Result<Bound> {
        let mut current = ContextHandle::NULL;
        // SAFETY: writes one handle.
        unsafe { self.api.context_current(&mut current) }
            .map_err(|failed| self.state_error(failed))?;
        let pushed = current != self.context;
        if pushed {
            // SAFETY: the context is never released.
            unsafe { self.api.context_push(self.context) }
                .map_err(|failed| self.state_error(failed))?;
        }
        Ok(Bound { api: self.api, pushed, thread: PhantomData })
    }

    /// An error if the device is lost; costs one load.
    #[inline]
    pub(super) fn alive(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(fault) => Err(self.lost_by(fault)),
        }
    }

    /// The fault itself if the device is lost: for those who ask about what they had in flight.
    #[inline]
    pub(super) fn intact(&self) -> Result<()> {
        self.fault().map_or(Ok(()), Err)
    }

    /// The fault that lost the device, as an error.
    pub(super) fn fault(&self) -> Option<Error> {
        self.lost.get().map(|fault| fault.clone().way_back("restart the process").into())
    }

    /// The error for a call that failed. A fault loses the device.
    #[cold]
    pub(super) fn error(&self, failed: Failed) -> Error {
        match status::meaning(failed.code) {
            Meaning::Lost(fault) => self.lose(fault),
            Meaning::Call | Meaning::NotReady => driver::driver_error(self.api, failed),
        }
    }

    /// The error where only the device's state can be the cause.
    #[cold]
    pub(super) fn state_error(&self, failed: Failed) -> Error {
        match status::meaning_of_state(failed.code) {
            // Also if another thread was told first: it was in flight here too.
            Meaning::Lost(fault) => {
                let lost = self.lose(fault);
                self.fault().unwrap_or(lost)
            }
            Meaning::Call | Meaning::NotReady => driver::driver_error(self.api, failed),
        }
    }

    /// Asks whether a stream has run everything, or has met an error. The context is bound.
    pub(super) fn ask(&self, stream: &Stream, _: &Bound) -> Result<bool> {
        // SAFETY: the stream is held (rule 3).
        match unsafe { self.api.stream_query(stream.raw) } {
            Ok(()) => Ok(true),
            Err(Failed { code: status::NOT_READY, .. }) => Ok(false),
            Err(failed) => Err(self.state_error(failed)),
        }
    }

    /// Gives back to the driver what was dropped. May block.
    pub(super) fn drain(&self, _: &Bound) {
        if self.lost.get().is_some() {
            return self.trash.forget();
        }
        // SAFETY: the context is bound.
        unsafe { self.trash.drain(self.api) };
    }

    /// Gives back device memory that was dropped, where an allocation needs it.
    pub(super) fn drain_device_memory(&self, _: &Bound) {
        // SAFETY: the context is bound.
        unsafe { self.trash.drain_device_memory(self.api) };
    }

    /// The first to tell of a fault says what it was; everybody later that the device is lost.
    fn lose(&self, fault: Fault) -> Error {
        match self.lost.set(fault) {
            Ok(()) => self.fault().unwrap_or_else(|| self.unexplained()),
            Err(_) => self.alive().err().unwrap_or_else(|| self.unexplained()),
        }
    }

    fn lost_by(&self, fault: &Fault) -> Error {
        let cause = format!("{fault}; this process cannot use the device any more, restart it");
        Error::DeviceLost { address: self.info.address.clone(), cause }
    }

    fn unexplained(&self) -> Error {
        Error::DeviceLost { address: self.info.address.clone(), cause: "unknown".into() }
    }
}

/// Proof that the context is current on this thread. Whatever was current before is again when it
/// goes.
///
/// Its drop is the one that calls the driver: it puts a thread's own setting back and cannot block.
#[derive(Debug)]
pub(super) struct Bound {
    api: &'static Api,
    pushed: bool,
    /// What is current is a matter of one thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ContextHandle::NULL;
            // SAFETY: takes off what `bind` has put on this thread's stack.
            _ = unsafe { self.api.context_pop(&mut popped) };
        }
    }
}
