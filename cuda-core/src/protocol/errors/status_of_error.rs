//! The status of an error, and whether a program can repeat the call.

use crate::protocol::{Error, Status};

impl Error {
    /// Returns the status of this error, so that a program can treat errors of leases and of local devices alike.
    ///
    /// An error of a node has the status that the node gave. Errors of any device have the status that fits: too little
    /// free device memory is [`Status::CapacityExceeded`], more than the device has [`Status::TooLarge`], code that
    /// cannot be loaded [`Status::LoadFailed`], a refused launch or a fault [`Status::LaunchFailed`], and a lost
    /// connection [`Status::Disconnected`]. Other errors have none.
    pub fn status(&self) -> Option<Status> {
        Some(match self.root() {
            Error::Remote { status, .. } => *status,
            Error::OutOfMemory { requested, total, .. } => Status::of_shortage(*requested, *total),
            Error::InvalidPtx { .. } | Error::PtxTooNew { .. } | Error::LoadFailed { .. } => {
                Status::LoadFailed
            }
            Error::Arguments { .. } | Error::InvalidLaunch { .. } | Error::Fault(_) => {
                Status::LaunchFailed
            }
            Error::Disconnected { .. } | Error::Unreachable { .. } => Status::Disconnected,
            _ => return None,
        })
    }

    /// Returns whether this error makes the device unusable until it is reset. Not every device can be reset.
    pub fn is_sticky(&self) -> bool {
        match self.root() {
            Error::Fault(_) | Error::DeviceLost { .. } | Error::Disconnected { .. } => true,
            Error::Remote { status, .. } => status.ends_lease(),
            _ => false,
        }
    }

    /// Returns whether the same call can succeed later without any change to it.
    pub fn is_retryable(&self) -> bool {
        match self.root() {
            Error::OutOfHostMemory { .. } | Error::Busy { .. } | Error::Unreachable { .. } => true,
            _ => self.status().is_some_and(Status::is_retryable),
        }
    }
}
