//! The faults by which a device is lost. A panic in an item counts as a fault.
//!
//! A reset starts a new *epoch*. An item carries the epoch in which it was submitted. A fault loses its own epoch:
//! items of that epoch are skipped, and items of later epochs run.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cuda_core::internals::sync::discard_panic;
use cuda_core::{Error, Fault, FaultKind, Result};
use parking_lot::Mutex;

/// The advice in the error of a lost device.
pub(crate) const RECOVERY: &str = "call `Device::reset()` to use the device again, or await `Device::start_reset()` in async code";

/// The first error of each epoch that may still have items. A check is cheap if there are no errors.
#[derive(Default)]
pub(crate) struct Lost {
    epoch: AtomicU64,
    /// Whether `by` has an entry, so that a check need not lock. Stored under the lock.
    any: AtomicBool,
    by: Mutex<BTreeMap<u64, Error>>,
}

impl Lost {
    /// Returns the current epoch, which new submissions belong to.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Records the failure of an item of this epoch. Only the first error of an epoch is kept. Returns whether it loses
    /// the device now. A fault of an earlier epoch does not: it belongs to the reset that ended that epoch.
    pub(crate) fn set(&self, error: Error, epoch: u64) -> bool {
        let mut by = self.by.lock();
        let first = !by.contains_key(&epoch);
        if first {
            by.insert(epoch, error);
            self.any.store(true, Ordering::Release);
        }
        first && epoch == self.epoch()
    }

    /// Starts a new epoch. Returns the previous one.
    pub(crate) fn begin_epoch(&self) -> u64 {
        let _by = self.by.lock();
        self.epoch.fetch_add(1, Ordering::AcqRel)
    }

    /// Removes the errors up to this epoch, whose items have all run or were skipped. Returns the fault of this epoch.
    pub(crate) fn end_epoch(&self, epoch: u64) -> Option<Error> {
        let mut by = self.by.lock();
        let later = by.split_off(&(epoch + 1));
        let ended = std::mem::replace(&mut *by, later).remove(&epoch);
        self.any.store(!by.is_empty(), Ordering::Release);
        ended
    }

    /// Checks whether an item of this epoch can run.
    ///
    /// # Errors
    /// The fault that lost the epoch.
    pub(crate) fn check_at(&self, epoch: u64) -> Result<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        self.by.lock().get(&epoch).cloned().map_or(Ok(()), Err)
    }
}

/// Returns the error of a submission to a device that was lost by `cause`. Items that were in flight fail with `cause`
/// itself.
pub(crate) fn refused(address: &str, cause: &Error) -> Error {
    let cause = match cause {
        Error::Fault(fault) if fault.recovery.is_some() => cause.to_string(),
        _ => format!("{cause}; {RECOVERY}"),
    };
    Error::DeviceLost { address: address.to_owned(), cause }
}

/// The message of a panic.
pub(crate) struct Panicked(pub(crate) String);

impl From<Panicked> for Error {
    fn from(Panicked(said): Panicked) -> Self {
        let what = format!("the CPU device's interpreter panicked: {said}");
        Fault::new(FaultKind::Other, what).recovery(RECOVERY).into()
    }
}

/// Runs `f` and catches a panic. The data that `f` uses must be its own, or atomic, or behind locks and valid between
/// any two steps.
pub(crate) fn contained<T>(f: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let said = message(&*panic);
        discard_panic(panic);
        Panicked(said)
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no message)").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(detail: &str) -> Error {
        Error::LoadFailed { log: detail.into() }
    }

    #[test]
    fn fault_loses_its_own_epoch_only() {
        let lost = Lost::default();
        assert!(lost.set(error("first"), 0));
        assert!(!lost.set(error("second"), 0));
        assert_eq!(lost.check_at(0), Err(error("first")));
        assert_eq!(lost.begin_epoch(), 0);
        assert_eq!((lost.epoch(), lost.check_at(1)), (1, Ok(())));
        assert_eq!(lost.check_at(0), Err(error("first")));
        assert_eq!(lost.end_epoch(0), Some(error("first")));
        assert_eq!(lost.begin_epoch(), 1);
        // An item from before the reset faults after it.
        assert!(!lost.set(error("late"), 1));
        assert_eq!((lost.check_at(1), lost.check_at(2)), (Err(error("late")), Ok(())));
        assert_eq!(lost.end_epoch(1), Some(error("late")));
        assert!(!lost.any.load(Ordering::Relaxed));
    }
}
