//! The fault that a device is lost by.
//!
//! A reset begins a new *epoch*. A job carries the epoch in which it was submitted, so a job from before a fault neither
//! runs after the reset nor loses the device again.

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
    /// Faults by epoch, oldest first, of epochs whose jobs may still be in flight. The latest is always kept.
    by: Mutex<Vec<(u64, Error)>>,
}

impl Lost {
    /// The epoch of what is submitted now.
    pub(crate) fn epoch(&self) -> u64 {
        self.state.load(Ordering::Acquire) / 2
    }

    /// A job of this epoch has failed. Returns whether it is the first: only then is the error kept.
    pub(crate) fn set(&self, error: Error, epoch: u64) -> bool {
        let mut by = self.by.lock();
        let first = self.state.load(Ordering::Relaxed) == epoch * 2;
        if first {
            by.push((epoch, error));
            self.state.store(epoch * 2 + 1, Ordering::Release);
        }
        first
    }

    /// Begins a new epoch if the device is lost. Returns the fault that it was lost by.
    pub(crate) fn clear(&self) -> Option<Error> {
        let by = self.by.lock();
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state.next_multiple_of(2), Ordering::Release);
        let lost = by.last().filter(|_| !state.is_multiple_of(2));
        lost.map(|(_, error)| error.clone())
    }

    /// All jobs of epochs before this one have run or were skipped.
    pub(crate) fn forget_before(&self, epoch: u64) {
        let mut by = self.by.lock();
        let done = by.partition_point(|(of, _)| *of < epoch);
        // A thread may be about to submit a job of an old epoch, so one fault is kept.
        let done = done.min(by.len().saturating_sub(1));
        by.drain(..done);
    }

    /// The fault because of which a job of this epoch cannot run.
    pub(crate) fn check_at(&self, epoch: u64) -> Result<()> {
        if self.state.load(Ordering::Acquire) == epoch * 2 {
            return Ok(());
        }
        let by = self.by.lock();
        let fault = by.iter().find(|(of, _)| *of == epoch).or(by.last());
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
    fn jobs_from_before_a_reset_stay_lost() {
        let lost = Lost::default();
        assert_eq!(lost.clear(), None);
        assert_eq!(lost.epoch(), 0);
        assert!(lost.set(error("first"), 0));
        assert!(!lost.set(error("second"), 0));
        assert_eq!(lost.check_at(0), Err(error("first")));
        assert_eq!(lost.clear(), Some(error("first")));
        assert_eq!(lost.check_at(1), Ok(()));
        assert_eq!(lost.check_at(0), Err(error("first")));
        assert!(!lost.set(error("late"), 0));
        assert_eq!(lost.check_at(1), Ok(()));
        assert!(lost.set(error("new"), 1));
        assert_eq!(lost.check_at(1), Err(error("new")));
        assert_eq!(lost.check_at(0), Err(error("first")));
    }

    #[test]
    fn faults_of_finished_epochs_are_forgotten_except_the_latest() {
        let lost = Lost::default();
        for epoch in 0..100 {
            assert!(lost.set(error("fault"), epoch));
            lost.clear();
            lost.forget_before(epoch + 1);
            assert_eq!(lost.check_at(epoch), Err(error("fault")));
        }
        assert_eq!(lost.by.lock().len(), 1);
    }
}
