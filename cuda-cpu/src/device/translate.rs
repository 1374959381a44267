//! The engine's errors as the library's.

use cuda_core::{Error, Fault, FaultKind, FaultSite};

use super::lost::WAY_BACK;
use crate::{AccessError, LaunchError, OutOfMemory};

pub(crate) fn out_of_memory(error: OutOfMemory) -> Error {
    Error::OutOfMemory { requested: error.requested, free: error.free, total: error.total }
}

/// A copy that met freed memory.
pub(crate) fn access(error: AccessError) -> Error {
    Fault::new(FaultKind::IllegalAddress, error.to_string()).way_back(WAY_BACK).into()
}

pub(crate) fn launch(kernel: &str, error: &LaunchError) -> Error {
    match error {
        LaunchError::Fault(fault) => self::fault(fault).into(),
        LaunchError::Invalid(invalid) => {
            Error::InvalidLaunch { kernel: kernel.to_owned(), detail: invalid.to_string() }
        }
    }
}

fn fault(fault: &crate::Fault) -> Fault {
    use crate::FaultKind as Engine;
    let (kind, address) = match &fault.kind {
        Engine::OutOfBounds { address, .. } | Engine::UseAfterFree { address, .. } => {
            (FaultKind::IllegalAddress, Some(*address))
        }
        Engine::Misaligned { address, .. } => (FaultKind::Misaligned, Some(*address)),
        Engine::Assert { .. } => (FaultKind::Assert, None),
        Engine::Trap => (FaultKind::Trap, None),
        Engine::Deadlock { .. } => (FaultKind::Deadlock, None),
        _ => (FaultKind::Other, None),
    };
    let mut site = FaultSite::new(fault.block, fault.thread);
    site.address = address;
    site.ptx_line = Some(fault.line).filter(|line| *line > 0 && kind != FaultKind::Deadlock);
    site.nearest = fault.nearest.as_ref().map(ToString::to_string);
    Fault::new(kind, what(&fault.kind)).in_kernel(&fault.kernel).at(site).way_back(WAY_BACK)
}

/// In words, without what the site says: the address, and where the nearest allocation is.
fn what(kind: &crate::FaultKind) -> String {
    use crate::FaultKind as Engine;
    let access = |write: &bool| if *write { "write" } else { "read" };
    match kind {
        Engine::OutOfBounds { space, bytes, write, .. } => {
            format!("out-of-bounds {} of {bytes} bytes in {space} memory", access(write))
        }
        Engine::UseAfterFree { bytes, write, .. } => {
            format!("{} of {bytes} bytes of freed memory", access(write))
        }
        Engine::Misaligned { space, bytes, write, .. } => {
            format!("misaligned {} of {bytes} bytes in {space} memory", access(write))
        }
        other => other.to_string(),
    }
}
