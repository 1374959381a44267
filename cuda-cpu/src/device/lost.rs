//! Whether the device is lost, and by what.
//!
//! A reset begins a new *epoch*. Work carries the epoch in which it was enqueued, so what was enqueued before
//! a fault neither runs after the reset nor loses the device again.

use std::sync::atomic::{AtomicU64, Ordering};

use cuda_core::{Error, Result};
use parking_lot::Mutex;

/// What to do once the device is lost.
pub(crate) const WAY_BACK: &str = "`Device::reset()` brings it back";

/// The first error that a kernel met. Cheap to ask while there is none.
#[derive(Default)]
pub(crate) struct Lost {
    /// Twice the epoch, and one more while the device is lost. Written under the lock.
    state: AtomicU64,
    /// What it is lost by, or was before the latest reset.
    by: Mutex<Option<Error>>,
}

impl Lost {
    /// The epoch of what is enqueued now.
    pub(crate) fn epoch(&self) -> u64 {
        self.state.load(Ordering::Acquire) / 2
    }

    /// Work of this epoch has failed. What failed first is kept.
    pub(crate) fn set(&self, error: Error, epoch: u64) {
        let mut by = self.by.lock();
        if self.state.load(Ordering::Relaxed) == epoch * 2 {
            *by = Some(error);
            self.state.store(epoch * 2 + 1, Ordering::Release);
        }
    }

    /// Begins a new epoch, if the device is lost; tells what it was lost by.
    pub(crate) fn clear(&self) -> Option<Error> {
        let by = self.by.lock();
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state.next_multiple_of(2), Ordering::Release);
        by.clone().filter(|_| !state.is_multiple_of(2))
    }

    /// What the device is lost by now.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_at(self.epoch())
    }

    /// What work of this epoch cannot run for.
    pub(crate) fn check_at(&self, epoch: u64) -> Result<()> {
        if self.state.load(Ordering::Acquire) == epoch * 2 {
            return Ok(());
        }
        self.by.lock().clone().map_or(Ok(()), Err)
    }
}

/// What is enqueued on a device that `cause` took is told. What was in flight then ends with `cause` itself.
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
    fn what_was_enqueued_before_a_reset_stays_lost() {
        let lost = Lost::default();
        lost.clear();
        assert_eq!(lost.epoch(), 0);
        lost.set(error("first"), 0);
        lost.set(error("second"), 0);
        assert_eq!(lost.check().unwrap_err().to_string(), error("first").to_string());
        lost.clear();
        assert!(lost.check().is_ok() && lost.check_at(1).is_ok());
        assert_eq!(lost.check_at(0).unwrap_err().to_string(), error("first").to_string());
        lost.set(error("late"), 0);
        assert!(lost.check().is_ok());
        lost.set(error("new"), 1);
        assert_eq!(lost.check().unwrap_err().to_string(), error("new").to_string());
    }
}
