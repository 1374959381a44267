//! Status codes of the driver, and their meaning.

use cuda_core::{Fault, FaultKind};

pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const NOT_SUPPORTED: i32 = 801;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const STUB_LIBRARY: i32 = 34;
pub(crate) const NO_DEVICE: i32 = 100;
pub(crate) const INVALID_IMAGE: i32 = 200;
pub(crate) const NO_BINARY_FOR_GPU: i32 = 209;
pub(crate) const INVALID_PTX: i32 = 218;
pub(crate) const JIT_COMPILER_NOT_FOUND: i32 = 221;
pub(crate) const UNSUPPORTED_PTX_VERSION: i32 = 222;
pub(crate) const JIT_COMPILATION_DISABLED: i32 = 223;
pub(crate) const INVALID_SOURCE: i32 = 300;
pub(crate) const LAUNCH_OUT_OF_RESOURCES: i32 = 701;
/// A cooperative launch has more blocks than run at the same time.
pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: i32 = 720;
pub(crate) const INVALID_CLUSTER_SIZE: i32 = 912;
pub(crate) const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
pub(crate) const NOT_READY: i32 = 600;

/// A call that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The driver's function.
    pub(crate) call: &'static str,
    /// The status it returned.
    pub(crate) code: i32,
}

impl Failed {
    #[inline]
    pub(crate) fn check(call: &'static str, code: i32) -> Result<(), Self> {
        if code == 0 { Ok(()) } else { Err(Self { call, code }) }
    }
}

/// The meaning of a code for the context that it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Work is still in flight. Not an error.
    NotReady,
    /// The device is lost: the context cannot be used any more.
    Lost(Fault),
    /// This one call failed.
    Call,
}

/// The meaning of a code that any call may return.
pub(crate) fn meaning(code: i32) -> Meaning {
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
        721 => (Other, "tensor memory that the kernel did not free"),
        _ => return Meaning::Call,
    };
    Meaning::Lost(Fault::new(kind, format!("{what} (CUDA status {code})")))
}

/// The meaning of a code of a call that only the state of the device can fail, such as a stream query. There an unknown
/// code loses the device too, since its futures would otherwise never resolve.
pub(crate) fn meaning_of_state(code: i32) -> Meaning {
    // The codes of stream capture: a stream that is being captured cannot be queried.
    const CAPTURE: std::ops::RangeInclusive<i32> = 900..=908;
    match meaning(code) {
        Meaning::Call if !CAPTURE.contains(&code) => {
            let what = format!("the device failed with CUDA status {code}");
            Meaning::Lost(Fault::new(FaultKind::Other, what))
        }
        other => other,
    }
}

/// Advice for a status of `cuInit`.
pub(crate) fn init_advice(code: i32) -> &'static str {
    match code {
        802 => "the system is not ready; start the fabric manager (`nvidia-fabricmanager`)",
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
    fn fault_codes_map_to_kinds() {
        assert_eq!(kind(700), Some(FaultKind::IllegalAddress));
        assert_eq!(kind(716), Some(FaultKind::Misaligned));
        assert_eq!(kind(710), Some(FaultKind::Assert));
        assert_eq!(kind(719), Some(FaultKind::Trap));
        assert_eq!(kind(715), Some(FaultKind::Other));
    }

    #[test]
    fn codes_of_a_single_call_do_not_lose_the_device() {
        for code in [1, OUT_OF_MEMORY, UNSUPPORTED_PTX_VERSION, INVALID_PTX, 701, 720, 12345] {
            assert_eq!(meaning(code), Meaning::Call, "{code}");
        }
        assert_eq!(meaning(NOT_READY), Meaning::NotReady);
    }

    #[test]
    fn unknown_code_of_a_stream_query_loses_the_device() {
        assert!(matches!(meaning_of_state(12345), Meaning::Lost(_)));
        assert!(matches!(meaning_of_state(999), Meaning::Lost(_)));
        assert_eq!(meaning_of_state(900), Meaning::Call);
        assert_eq!(meaning_of_state(NOT_READY), Meaning::NotReady);
    }

    #[test]
    fn fault_text_names_its_status() {
        let Meaning::Lost(fault) = meaning(700) else { panic!("700 is a fault") };
        assert!(fault.to_string().contains("CUDA status 700"), "{fault}");
    }

    #[test]
    fn only_zero_is_success() {
        assert_eq!(Failed::check("cuInit", 0), Ok(()));
        assert_eq!(Failed::check("cuInit", -1), Err(Failed { call: "cuInit", code: -1 }));
    }
}
