//! Calls of device functions: the callee, and the locations of arguments and results.

use super::slot::{Class, Slot};

/// The operands of a call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) callee: Callee,
    /// Arguments and results, in order.
    pub(crate) arguments: Vec<Passed>,
    pub(crate) results: Vec<Passed>,
}

/// Target of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callee {
    /// Index into `Code::functions`.
    Direct(u32),
    /// The function at the address in the register.
    Indirect(Slot),
    /// A function that the device provides.
    Builtin(Builtin),
}

/// Device functions without a PTX body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Builtin {
    Vprintf,
    Assertfail,
    Malloc,
    Free,
}

/// Location of an argument or result on the caller's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Bytes of the caller's local memory: (offset in its frame, size).
    Local(u32, u32),
    /// A register.
    Register(Slot, Class),
}

impl Passed {
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::Local(_, bytes) => bytes,
            Self::Register(_, Class::W64) => 8,
            Self::Register(..) => 4,
        }
    }
}
