//! The loss of a device: a fault marks it as lost, at most once and for good.
//!
//! A failed call becomes an [`Error`] here, because its status may be a fault that loses the device.

use cuda_core::protocol::{Error, Fault, FaultKind, Result};

use super::primary::Primary;
use crate::driver::{
    library,
    status::{self, Failed, Meaning},
};

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
