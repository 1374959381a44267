//! Descriptions of waiting threads.

use std::fmt;

use cuda_core::SourceLine;

use super::place::place;

/// Waiting lanes of a warp, for [`FaultKind::Deadlock`](super::FaultKind::Deadlock) and
/// [`FaultKind::BarrierDivergence`](super::FaultKind::BarrierDivergence).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Index of the warp in its block.
    pub warp: u32,
    /// Mask of the lanes.
    pub lanes: u32,
    /// The event that they wait for.
    pub waits_for: WaitsFor,
    /// The kind of the instruction. It is empty for lanes that repeatedly test a condition.
    pub instruction: String,
    /// Line in the PTX.
    pub line: u32,
    /// Line in the source, if the PTX contains it.
    pub source: Option<SourceLine>,
}

/// The event for which threads wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// Other lanes of the same warp.
    Warp,
    /// The barrier of the block with this number.
    Barrier(u32),
    /// The mbarrier at this address in shared memory.
    Mbarrier(u64),
    /// The cluster barrier.
    Cluster,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { warp, lanes, line, source, .. } = self;
        write!(f, "warp {warp} lanes {lanes:#010x} ")?;
        match self.waits_for {
            WaitsFor::Warp => {
                write!(f, "for other lanes of their member mask in `{}`, ", self.instruction)
            }
            WaitsFor::Barrier(n) => write!(f, "at barrier {n}, "),
            WaitsFor::Mbarrier(at) => write!(f, "at the mbarrier at {at:#x}, "),
            WaitsFor::Cluster => f.write_str("at the cluster barrier, "),
        }?;
        place(f, *line, source.as_ref())
    }
}
