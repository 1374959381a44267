//! What a kernel did wrong, and where.

mod kind;
mod message;
mod place;
mod racing;
mod space;
mod waiting;

use std::fmt;

use cuda_core::SourceLine;

use self::place::place;
use super::variables::NearVariable;
use crate::memory::Nearest;

pub use self::kind::FaultKind;
pub use self::racing::Racing;
pub use self::space::FaultSpace;
pub use self::waiting::{Waiting, WaitsFor};

/// A kernel's error: where it happened and what it was.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The kernel's name.
    pub kernel: String,
    /// `blockIdx` of the thread.
    pub block: [u32; 3],
    /// `threadIdx` of the thread (the first one, when several are concerned).
    pub thread: [u32; 3],
    /// Line in the PTX text; 0 when unknown.
    pub line: u32,
    /// Line in the source that was compiled to it, if the PTX names it (`.loc`, from `-lineinfo`).
    pub source: Option<SourceLine>,
    /// For an access to global memory: the allocation that it is in, or next to.
    pub nearest: Option<Nearest>,
    /// For an access to global or shared memory: the variable of the PTX that it is in, or next to.
    pub variable: Option<NearVariable>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "kernel `{}`, block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})", self.kernel)?;
        if self.line != 0 {
            f.write_str(", ")?;
            place(f, self.line, self.source.as_ref())?;
        }
        write!(f, ": {}", self.kind)?;
        if let Some(nearest) = self.nearest {
            write!(f, ", {nearest}")?;
        }
        self.variable.as_ref().map_or(Ok(()), |variable| write!(f, ", {variable}"))
    }
}

impl std::error::Error for Fault {}
