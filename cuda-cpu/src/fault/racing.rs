//! The other access of a race.

use std::fmt;

use cuda_core::SourceLine;

use super::place::place;

/// The earlier of two racing accesses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Racing {
    /// `threadIdx` of the thread, in the same block.
    pub thread: [u32; 3],
    /// Line in the PTX.
    pub line: u32,
    /// Line in the source, if the PTX contains it.
    pub source: Option<SourceLine>,
    /// Whether the access is a store or an atomic, not a load.
    pub write: bool,
    /// Whether the access is an atomic, or counts as one.
    pub atomic: bool,
}

impl Racing {
    pub(crate) fn how(write: bool, atomic: bool) -> &'static str {
        match (write, atomic) {
            (true, true) => "atomic",
            (true, false) => "write",
            (false, true) => "atomic read",
            (false, false) => "read",
        }
    }
}

impl fmt::Display for Racing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread: [x, y, z], line, source, write, atomic } = self;
        let how = Self::how(*write, *atomic);
        write!(f, "nothing orders it and the {how} by thread ({x}, {y}, {z}), ")?;
        place(f, *line, source.as_ref())
    }
}
