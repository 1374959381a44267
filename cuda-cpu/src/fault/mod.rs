//! Faults: errors of a kernel with their location.
//!
//! A fault is plain data with a message. This folder uses only `memory`. Handlers, observers and the scheduler create a
//! [`FaultKind`], `launch` adds the place to make a [`Fault`], and `device` reports it.

mod kind;
mod mbarrier;
mod message;
mod place;
mod racing;
mod space;
mod variable;
mod waiting;

use std::fmt;

use cuda_core::SourceLine;

use self::place::place;
use crate::memory::Nearest;

pub use self::kind::FaultKind;
pub use self::mbarrier::MbarrierMisuse;
pub use self::racing::Racing;
pub use self::space::FaultSpace;
pub use self::variable::NearVariable;
pub use self::waiting::{Waiting, WaitsFor};

/// An error of a kernel: its kind and location.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Fault {
    /// The kind of the error.
    pub kind: FaultKind,
    /// The name of the kernel.
    pub kernel: String,
    /// `blockIdx` of the thread.
    pub block: [u32; 3],
    /// `threadIdx` of the thread, or of the first one if several are involved.
    pub thread: [u32; 3],
    /// Line in the PTX, or 0 if unknown.
    pub line: u32,
    /// Line in the source from which the PTX was compiled, if the PTX contains it (`.loc`, from `-lineinfo`).
    pub source: Option<SourceLine>,
    /// For an access to global memory: the allocation that contains the address or is nearest to it.
    pub nearest: Option<Nearest>,
    /// For an access to global or shared memory: the PTX variable that contains the address or is nearest to it.
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
