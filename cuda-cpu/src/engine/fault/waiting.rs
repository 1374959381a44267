//! Threads that wait.

use std::fmt;

use cuda_core::SourceLine;

use super::place::place;

/// Threads that wait, for [`FaultKind::Deadlock`](super::FaultKind::Deadlock) and [`FaultKind::BarrierDivergence`](super::FaultKind::BarrierDivergence).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// The warp in its block.
    pub warp: u32,
    /// Its lanes.
    pub lanes: u32,
    /// What they wait for.
    pub waits_for: WaitsFor,
    /// The instruction, as far as its kind; empty, where they are between two looks at what they wait for.
    pub instruction: String,
    /// Line in the PTX text.
    pub line: u32,
    /// Line in the source, if the PTX names it.
    pub source: Option<SourceLine>,
}

/// See [`Waiting`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// Lanes of their own warp.
    Warp,
    /// The barrier of the block with this number.
    Barrier(u32),
    /// The mbarrier at this address in shared memory.
    Mbarrier(u64),
    /// The barrier of the cluster.
    Cluster,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { warp, lanes, line, source, .. } = self;
        write!(f, "warp {warp} lanes {lanes:#010x} ")?;
        match self.waits_for {
            WaitsFor::Warp => write!(f, "for others of their mask in `{}`, ", self.instruction),
            WaitsFor::Barrier(n) => write!(f, "at barrier {n}, "),
            WaitsFor::Mbarrier(at) => write!(f, "at the mbarrier at {at:#x}, "),
            WaitsFor::Cluster => f.write_str("at the cluster's barrier, "),
        }?;
        place(f, *line, source.as_ref())
    }
}
