//! The memory of a faulting access.

use std::fmt;

/// The memory of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FaultSpace {
    Global,
    Shared,
    Local,
    Param,
}

impl fmt::Display for FaultSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "global",
            Self::Shared => "shared",
            Self::Local => "local",
            Self::Param => "parameter",
        })
    }
}
