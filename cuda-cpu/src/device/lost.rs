//! Faults that lose the device.
//!
//! A reset begins a new *epoch*. A job carries the epoch in which it was submitted. A fault skips the jobs behind it in its
//! own epoch only: jobs from before a reset are not run after it by mistake, and do not lose the device again.

use std::sync::atomic::{AtomicU64, Ordering};

use cuda_core::{Error, Result};
use parking_lot::Mutex;

/// The advice that goes with the error of a lost device.
pub(crate) const WAY_BACK: &str = "`Device::reset()` brings it back";

/// The first fault of every epoch. A look is cheap while there is none.
#[derive(Default)]
pub(crate) struct Lost {
    /// Twice the epoch, plus one while the device is lost. Written under the lock.
    state: AtomicU64,
    /// Faults with their epochs. Faults of epochs that have ended are removed.
    faults: Mutex<Vec<(u64, Error)>>,
}

impl Lost {
    /// The epoch of what is submitted now.
    pub(crate) fn epoch(&self) -> u64 {
        self.state.load(Ordering::Acquire) / 2
    }

    /// A job of this epoch has failed. Returns whether that loses the device now.
    pub(crate) fn set(&self, error: Error, epoch: u64) -> bool {
        let mut faults = self.faults.lock();
        if faults.iter().all(|(of, _)| *of != epoch) {
            faults.push((epoch, error));
        }
        let loses = self.state.load(Ordering::Relaxed) == epoch * 2;
        if loses {
            self.state.store(epoch * 2 + 1, Ordering::Release);
        }
        loses
    }

    /// Begins a new epoch, in which the device is not lost. Returns it.
    pub(crate) fn begin_epoch(&self) -> u64 {
        let _faults = self.faults.lock();
        let epoch = self.epoch() + 1;
        self.state.store(epoch * 2, Ordering::Release);
        epoch
    }

    /// All jobs of epochs before this one have run or were skipped. Returns the fault of the one before it.
    pub(crate) fn end_before(&self, epoch: u64) -> Option<Error> {
        let mut faults = self.faults.lock();
        let mut ended = faults.extract_if(.., |(of, _)| *of < epoch);
        ended.find_map(|(of, error)| (of + 1 == epoch).then_some(error))
    }

    /// The fault because of which a job of this epoch cannot run.
    pub(crate) fn check_at(&self, epoch: u64) -> Result<()> {
        if self.state.load(Ordering::Acquire) == epoch * 2 {
            return Ok(());
        }
        let faults = self.faults.lock();
        let fault = faults.iter().find(|(of, _)| *of == epoch);
        fault.map_or(Ok(()), |(_, error)| Err(error.clone()))
    }
}

/// The error of a submission to a device that `cause` took. Jobs that were in flight then fail with `cause` itself.
pub(crate) fn refused(address: &str, cause: &Error) -> Error {
    let cause = match cause {
        Error::Fault(fault) if fault.way_back.is_some() => cause.to_string(),
        _ => format!("{cause}; {WAY_BACK}"),
    };
    Error::DeviceLost { address: address.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(detail: &str) -> Error {
        Error::LoadFailed { log: detail.into() }
    }

    #[test]
    fn fault_skips_jobs_of_its_own_epoch_only() {
        let lost = Lost::default();
        assert!(lost.set(error("first"), 0));
        assert!(!lost.set(error("second"), 0));
        assert_eq!(lost.check_at(0), Err(error("first")));
        assert_eq!(lost.begin_epoch(), 1);
        assert_eq!(lost.check_at(1), Ok(()));
        assert_eq!(lost.check_at(0), Err(error("first")));
        assert!(!lost.set(error("late"), 0));
        assert_eq!(lost.check_at(1), Ok(()));
        assert!(lost.set(error("new"), 1));
        assert_eq!(lost.check_at(1), Err(error("new")));
        assert_eq!(lost.check_at(0), Err(error("first")));
        assert_eq!(lost.end_before(1), Some(error("first")));
        assert_eq!(lost.check_at(1), Err(error("new")));
    }

    #[test]
    fn fault_behind_a_reset_request_belongs_to_the_reset() {
        let lost = Lost::default();
        let epoch = lost.begin_epoch();
        assert_eq!(lost.check_at(0), Ok(()));
        assert!(!lost.set(error("late"), 0));
        assert_eq!((lost.check_at(0), lost.check_at(1)), (Err(error("late")), Ok(())));
        assert_eq!(lost.end_before(epoch), Some(error("late")));
        assert_eq!(lost.end_before(lost.begin_epoch()), None);
        assert!(lost.faults.lock().is_empty());
    }
}
