//! What the driver's codes mean.

use crate::{Fault, FaultKind};

pub(super) const OUT_OF_MEMORY: i32 = 2;
pub(super) const STUB_LIBRARY: i32 = 34;
pub(super) const NO_DEVICE: i32 = 100;
pub(super) const INVALID_IMAGE: i32 = 200;
pub(super) const NO_BINARY_FOR_GPU: i32 = 209;
pub(super) const INVALID_PTX: i32 = 218;
pub(super) const JIT_COMPILER_NOT_FOUND: i32 = 221;
pub(super) const UNSUPPORTED_PTX_VERSION: i32 = 222;
pub(super) const JIT_COMPILATION_DISABLED: i32 = 223;
pub(super) const INVALID_SOURCE: i32 = 300;
pub(super) const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
pub(super) const NOT_READY: i32 = 600;

/// A call that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed {
    /// The driver's function.
    pub(super) call: &'static str,
    /// What it returned.
    pub(super) code: i32,
}

impl Failed {
    #[inline]
    pub(super) fn check(call: &'static str, code: i32) -> Result<(), Self> {
        if code == 0 { Ok(()) } else { Err(Self { call, code }) }
    }
}

/// What a code says of the context that it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The stream has not got there yet; not an error.
    NotReady,
    /// The context is gone for good.
    Lost(Fault),
    /// This one call failed.
    Call,
}

/// What `code` means wherever it comes from.
pub(super) fn meaning(code: i32) -> Meaning {
    use FaultKind::{Assert, IllegalAddress, Misaligned, Other, Trap};
    let (kind, what) = match code {
        NOT_READY => return Meaning::NotReady,
        4 => (Other, "the CUDA driver is shutting down"),
        214 => (Other, "an uncorrectable memory error of the device"),
        220 => (Other, "an uncorrectable error of NVLink"),
        226 => (Other, "an error that the device contained"),
        700 => (IllegalAddress, "an access to memory that is not allocated"),
        702 => (Other, "the kernel ran longer than this display's device allows"),
        709 => (Other, "the device's context was destroyed by other code"),
        710 => (Assert, "an assertion failed"),
        714 => (Other, "a corrupted call stack or a stack overflow"),
        715 => (Other, "an illegal instruction"),
        716 => (Misaligned, "an access that is not aligned to its size"),
        717 => (IllegalAddress, "an access to memory of the wrong address space"),
        718 => (Other, "a jump to an invalid address"),
        719 => (Trap, "a trap, or a failure that the device does not specify"),
        721 => (Other, "tensor memory that was not given back"),
        _ => return Meaning::Call,
    };
    Meaning::Lost(Fault::new(kind, format!("{what} (CUDA status {code})")))
}

/// What `code` means where only the state of the device can be the cause: "how is this stream?",
/// "make the context current". There a code that nobody knows loses the device too, or its futures
/// would wait forever.
pub(super) fn meaning_of_state(code: i32) -> Meaning {
    // The codes of stream capture: a stream that is being captured cannot be asked.
    const SAYS_NOTHING: std::ops::RangeInclusive<i32> = 900..=908;
    match meaning(code) {
        Meaning::Call if !SAYS_NOTHING.contains(&code) => {
            let what = format!("the device failed with CUDA status {code}");
            Meaning::Lost(Fault::new(FaultKind::Other, what))
        }
        other => other,
    }
}

/// Why `cuInit` refused, and what to do.
pub(super) fn init_advice(code: i32) -> &'static str {
    match code {
        802 => "the system is not ready; is the fabric manager running?",
        803 => "the driver library and the kernel module differ; reboot, or reload the module",
        804 => "a compatibility library in the search path does not fit this GPU; remove it",
        _ => "run `nvidia-smi`: the kernel module may not be loaded, or the device files missing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: i32) -> Option<FaultKind> {
        match meaning(code) {
            Meaning::Lost(fault) => Some(fault.kind),
            _ => None,
        }
    }

    #[test]
    fn faults_have_their_kinds() {
        assert_eq!(kind(700), Some(FaultKind::IllegalAddress));
        assert_eq!(kind(716), Some(FaultKind::Misaligned));
        assert_eq!(kind(710), Some(FaultKind::Assert));
        assert_eq!(kind(719), Some(FaultKind::Trap));
        assert_eq!(kind(715), Some(FaultKind::Other));
    }

    #[test]
    fn what_only_one_call_met_loses_nothing() {
        for code in [1, OUT_OF_MEMORY, UNSUPPORTED_PTX_VERSION, INVALID_PTX, 701, 720, 12345] {
            assert_eq!(meaning(code), Meaning::Call, "{code}");
        }
        assert_eq!(meaning(NOT_READY), Meaning::NotReady);
    }

    #[test]
    fn a_stream_with_an_unknown_error_is_lost() {
        assert!(matches!(meaning_of_state(12345), Meaning::Lost(_)));
        assert!(matches!(meaning_of_state(999), Meaning::Lost(_)));
        assert_eq!(meaning_of_state(900), Meaning::Call);
        assert_eq!(meaning_of_state(NOT_READY), Meaning::NotReady);
    }

    #[test]
    fn a_fault_names_its_status() {
        let Meaning::Lost(fault) = meaning(700) else { panic!("700 is a fault") };
        assert!(fault.to_string().contains("CUDA status 700"), "{fault}");
    }

    #[test]
    fn only_zero_is_success() {
        assert_eq!(Failed::check("cuInit", 0), Ok(()));
        assert_eq!(Failed::check("cuInit", -1), Err(Failed { call: "cuInit", code: -1 }));
    }
}
