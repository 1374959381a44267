//! Errors of the device, and those of programs and launches in the terms of `cuda-core`.

use cuda_core::{Error, Fault, FaultKind, FaultSite};

use super::lost::RECOVERY;
use crate::{AccessError, FaultSpace, LaunchError, OutOfMemory, Racing};

pub(crate) fn out_of_memory(error: OutOfMemory) -> Error {
    let OutOfMemory { requested, free, total, refused_by_host } = error;
    if refused_by_host {
        return Error::OutOfHostMemory { requested };
    }
    Error::OutOfMemory { requested, free, total, pool: None }
}

/// Returns the fault of a copy that accesses freed memory.
pub(crate) fn access(error: AccessError) -> Error {
    Fault::new(FaultKind::IllegalAddress, error.to_string()).recovery(RECOVERY).into()
}

pub(crate) fn launch(kernel: &str, error: &LaunchError) -> Error {
    match error {
        LaunchError::Fault(fault) => self::fault(fault).into(),
        LaunchError::Invalid(invalid) => {
            Error::InvalidLaunch { kernel: kernel.to_owned(), detail: invalid.to_string() }
        }
    }
}

/// Returns the error for an allocation within the device's capacity that the host has no memory for.
pub(crate) fn no_host_memory(error: &OutOfMemory) -> Error {
    let what = format!(
        "the host is out of memory: an allocation of device memory needs {} bytes",
        error.requested
    );
    Fault::new(FaultKind::Other, what).recovery(RECOVERY).into()
}

fn fault(fault: &crate::Fault) -> Fault {
    use crate::FaultKind as Kind;
    let kind = match &fault.kind {
        Kind::OutOfBounds { .. } | Kind::UseAfterFree { .. } | Kind::BadFree { .. } => {
            FaultKind::IllegalAddress
        }
        Kind::Misaligned { .. } => FaultKind::Misaligned,
        Kind::Assert { .. } => FaultKind::Assert,
        Kind::Trap => FaultKind::Trap,
        Kind::Deadlock { .. } => FaultKind::Deadlock,
        Kind::BarrierDivergence { .. } => FaultKind::BarrierDivergence,
        Kind::Uninitialized { .. } | Kind::AbsentLane { .. } => FaultKind::Uninitialized,
        Kind::Race { .. } => FaultKind::Race,
        Kind::ReadOnlyArgument { .. } => FaultKind::ReadOnlyArgument,
        Kind::Budget { .. } | Kind::InstructionBudget { .. } => FaultKind::Budget,
        _ => FaultKind::Other,
    };
    let mut site = FaultSite::new(fault.block, fault.thread);
    site.address = fault.kind.access().map(|(_, address, _)| address);
    site.ptx_line = Some(fault.line).filter(|line| *line > 0);
    site.source = fault.source.clone();
    site.nearest = near(fault);
    Fault::new(kind, what(&fault.kind)).in_kernel(&fault.kernel).at(site).recovery(RECOVERY)
}

/// The distance from address 0, or from the end of the address space, within which an address counts as an offset from
/// a null pointer. No allocation lies there.
const NULL_PAGE: u64 = 1 << 16;

/// The maximum distance in bytes of an allocation that an error names.
const FAR: u64 = 1 << 36;

/// Describes the nearest allocation or variable.
fn near(fault: &crate::Fault) -> Option<String> {
    if let Some((FaultSpace::Global, address, _)) = fault.kind.access() {
        if !(NULL_PAGE..=u64::MAX - NULL_PAGE).contains(&address) {
            return Some("a null pointer, or an offset from one".to_owned());
        }
        let near = |nearest: crate::Nearest| nearest.distance.unsigned_abs() <= FAR;
        if !fault.nearest.is_some_and(near) && fault.variable.is_none() {
            return Some("far from every allocation".to_owned());
        }
    }
    match (&fault.nearest, &fault.variable) {
        (Some(nearest), Some(variable)) => Some(format!("{nearest}, {variable}")),
        (Some(nearest), None) => Some(nearest.to_string()),
        (None, variable) => variable.as_ref().map(ToString::to_string),
    }
}

/// Describes the fault. The site is reported separately.
fn what(kind: &crate::FaultKind) -> String {
    use crate::FaultKind as Kind;
    let access = |write: &bool| if *write { "write" } else { "read" };
    match kind {
        Kind::OutOfBounds { space, bytes, write, .. } => {
            format!("out-of-bounds {} of {bytes} bytes in {space} memory", access(write))
        }
        Kind::UseAfterFree { bytes, write, .. } => {
            format!("{} of {bytes} bytes of freed memory", access(write))
        }
        Kind::Misaligned { space, bytes, write, .. } => {
            format!("misaligned {} of {bytes} bytes in {space} memory", access(write))
        }
        Kind::Uninitialized { space, bytes, .. } => {
            format!("read of {bytes} bytes of {space} memory that was never written")
        }
        Kind::Race { bytes, write, atomic, other, .. } => {
            let how = Racing::how(*write, *atomic);
            format!("race: {how} of {bytes} bytes of shared memory; {other}")
        }
        other => other.to_string(),
    }
}
