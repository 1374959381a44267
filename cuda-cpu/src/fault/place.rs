//! Formats positions in the PTX and in its source.

use std::fmt;

use cuda_core::SourceLine;

/// Writes a position as in `PTX line 7, k.cu:3:5`.
pub(super) fn place(
    f: &mut fmt::Formatter<'_>,
    line: u32,
    source: Option<&SourceLine>,
) -> fmt::Result {
    write!(f, "PTX line {line}")?;
    source.map_or(Ok(()), |source| write!(f, ", {source}"))
}
