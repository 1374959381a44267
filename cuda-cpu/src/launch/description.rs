//! The description of a launch, and its validation before anything runs.

use std::fmt;
use std::sync::atomic::AtomicBool;

use cuda_core::protocol::MAX_GRID;

use crate::fault::Fault;
use crate::isa::{MAX_BLOCK_THREADS, MAX_CLUSTER_BLOCKS};
use crate::observe::{Checks, Operand, Profile, Schedule};

/// Maximum values of `blockDim`.
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];

/// Grid and block dimensions of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchDims {
    /// `gridDim`.
    pub grid: [u32; 3],
    /// `blockDim`.
    pub block: [u32; 3],
    /// Dynamic shared memory, in bytes.
    pub dynamic_shared: u32,
}

/// Conditions that end a launch early.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits<'a> {
    /// Maximum number of loop iterations, summed over all warps. Beyond it the launch is a fault. Calls and waits at
    /// barriers also count. Instructions with which threads wait for each other (atomics and volatile loads) count
    /// more. The limit is checked from time to time, so a launch may run a little longer. The check has no cost.
    pub iterations: Option<u64>,
    /// Maximum number of instructions that the launch may execute. With one more, the launch is a fault.
    ///
    /// An instruction of the PTX counts once each time that a warp executes it, or a fragment of a warp whose lanes are
    /// at the same place. The number of executing lanes does not matter, and an instruction also counts if its guard is
    /// false for all of them. Instructions that only copy a kernel parameter, a special register or a constant into a
    /// register do not count, because the register holds the value from the start.
    ///
    /// A launch with at most this many instructions never faults by this limit, and one with more always does. One
    /// worker stops right before the first instruction beyond the limit. Of several workers, each may execute up to 256
    /// instructions more. The limit makes the launch a few percent slower.
    pub instructions: Option<u64>,
    /// A flag that another thread sets to end the launch with [`FaultKind::Cancelled`](crate::FaultKind).
    pub cancel: Option<&'a AtomicBool>,
}

/// The inputs and options of a launch.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    /// Grid and block dimensions.
    pub dims: LaunchDims,
    /// The parameter block: each parameter at its offset.
    pub params: &'a [u8],
    /// The memory that the launch names, for [`Checks::read_only`]. Other launches need not state it.
    pub operands: &'a [Operand],
    /// The limits that end the launch early.
    pub limits: Limits<'a>,
    /// The pool over which the blocks are distributed, together with the calling thread. Without a pool, or if the
    /// [`Schedule`] requires one worker, the calling thread runs all blocks.
    pub pool: Option<&'a rayon::ThreadPool>,
    /// The order in which blocks and warps run.
    pub schedule: Schedule,
    /// Checks in addition to those that are always on.
    pub checks: Checks,
    /// The profile that counts the executed instructions, if any.
    pub profile: Option<&'a Profile>,
    /// The blocks of a cluster in x, y and z. `None` is the cluster that the kernel requires, or a single block.
    pub cluster: Option<[u32; 3]>,
    /// Whether all blocks run at the same time, so that they can wait for each other.
    pub cooperative: bool,
    /// The number of multiprocessors of the device, for the limit of cooperative launches.
    pub multiprocessors: u32,
    /// The function that receives the output of `printf`. It is called with complete strings, from several threads.
    pub print: &'a (dyn Fn(&str) + Sync),
}

impl<'a> Launch<'a> {
    /// Creates a launch on the calling thread, without limits and additional checks.
    pub fn new(dims: LaunchDims, params: &'a [u8], print: &'a (dyn Fn(&str) + Sync)) -> Self {
        let (limits, schedule, checks) = Default::default();
        let (pool, profile, cluster, cooperative) = Default::default();
        Self {
            dims,
            params,
            operands: &[],
            limits,
            pool,
            schedule,
            checks,
            profile,
            cluster,
            cooperative,
            multiprocessors: 1,
            print,
        }
    }
}

/// The reason why a launch failed.
#[derive(Debug, Clone, PartialEq)]
pub enum LaunchError {
    /// The launch is invalid, and nothing ran.
    Invalid(Invalid),
    /// The kernel faulted.
    Fault(Box<Fault>),
}

/// The reason why a launch is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// The program has no entry with this index.
    Entry {
        /// The given index.
        index: usize,
    },
    /// A dimension of the grid is zero or too large.
    Grid([u32; 3]),
    /// A dimension of the block is zero or too large, or the block has too many threads.
    Block([u32; 3]),
    /// The kernel requires another block (`.reqntid`).
    RequiredBlock {
        /// The given block.
        block: [u32; 3],
        /// The required block.
        required: [u32; 3],
    },
    /// The block has more threads than the kernel permits (`.maxntid`).
    MaxThreads {
        /// The given block.
        block: [u32; 3],
        /// The maximum number of threads.
        most: u64,
    },
    /// The block needs too much shared memory.
    Shared {
        /// Static and dynamic shared memory in bytes.
        bytes: u64,
        /// The maximum in bytes.
        most: u32,
    },
    /// A single block needs too much host memory for registers, local memory and shared memory.
    Memory {
        /// Bytes that one block needs.
        bytes: u64,
        /// The maximum in bytes.
        most: u64,
    },
    /// The grid is not a multiple of the cluster, or the cluster has a zero or too many blocks.
    Cluster {
        /// The grid.
        grid: [u32; 3],
        /// The cluster.
        cluster: [u32; 3],
    },
    /// The kernel requires another cluster (`.reqnctapercluster`).
    RequiredCluster {
        /// The given cluster.
        cluster: [u32; 3],
        /// The required cluster.
        required: [u32; 3],
    },
    /// A cooperative grid has more blocks than run at the same time.
    Cooperative {
        /// The blocks of the grid.
        blocks: u64,
        /// The maximum.
        most: u64,
    },
    /// The parameter block has another length than the parameters.
    Params {
        /// The given length in bytes.
        given: usize,
        /// The required length in bytes.
        needed: usize,
    },
}

impl LaunchDims {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let fits = |d: [u32; 3], most: [u32; 3]| d.iter().zip(most).all(|(&d, m)| d >= 1 && d <= m);
        if !fits(self.grid, MAX_GRID) {
            return Err(Invalid::Grid(self.grid));
        }
        // Of dimensions that do not fit, the product may exceed 64 bits.
        let threads = || self.block.iter().map(|&d| u64::from(d)).product::<u64>();
        if !fits(self.block, MAX_BLOCK) || threads() > u64::from(MAX_BLOCK_THREADS) {
            return Err(Invalid::Block(self.block));
        }
        Ok(())
    }
}

impl From<Invalid> for LaunchError {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry { index } => write!(f, "the module has no entry {index}"),
            Self::Grid(grid) => write!(
                f,
                "a grid of {grid:?}: each must be 1 to {MAX_GRID:?}; use fewer blocks, and a loop in the kernel"
            ),
            Self::Block(block) => write!(
                f,
                "a block of {block:?}: each must be 1 to {MAX_BLOCK:?}, at most {MAX_BLOCK_THREADS} threads; use another block"
            ),
            Self::RequiredBlock { block, required } => {
                write!(f, "a block of {block:?}: the kernel requires {required:?}; use that")
            }
            Self::MaxThreads { block, most } => {
                write!(
                    f,
                    "a block of {block:?}: the kernel allows at most {most} threads; use a smaller block"
                )
            }
            Self::Shared { bytes, most } => {
                write!(f, "{bytes} bytes of shared memory: a block has at most {most}; use less")
            }
            Self::Memory { bytes, most } => write!(
                f,
                "a block needs {bytes} bytes of registers, local and shared memory, the limit is {most}; use a smaller block"
            ),
            Self::Cluster { grid, cluster } => write!(
                f,
                "clusters of {cluster:?} blocks in a grid of {grid:?}: the grid must be a multiple of the cluster, which has 1 to {MAX_CLUSTER_BLOCKS} blocks; use another grid or cluster"
            ),
            Self::RequiredCluster { cluster, required } => {
                write!(
                    f,
                    "clusters of {cluster:?} blocks: the kernel requires {required:?}; use that"
                )
            }
            Self::Cooperative { blocks, most } => write!(
                f,
                "a cooperative grid of {blocks} blocks, {most} blocks fit at once on this device; use fewer blocks, and a loop in the kernel"
            ),
            Self::Params { given, needed } => {
                write!(
                    f,
                    "{given} bytes of parameters: the kernel takes {needed}; pass its parameters"
                )
            }
        }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(invalid) => write!(f, "invalid launch: {invalid}"),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for Invalid {}
impl std::error::Error for LaunchError {}
