//! What a launch is given, and what can be wrong with it before anything runs.

use std::fmt;
use std::sync::atomic::AtomicBool;

use super::fault::Fault;
use super::observe::{Checks, Profile, Schedule};

/// Threads in a block.
pub const MAX_BLOCK_THREADS: u32 = 1024;

/// Static and dynamic shared memory of a block, in bytes: 227 KiB.
pub const MAX_SHARED_BYTES: u32 = 227 << 10;

/// `gridDim`'s and `blockDim`'s largest values.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];

/// How many blocks of how many threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchDims {
    /// `gridDim`.
    pub grid: [u32; 3],
    /// `blockDim`.
    pub block: [u32; 3],
    /// Dynamic shared memory, in bytes.
    pub dynamic_shared: u32,
}

/// What may end a launch early.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits<'a> {
    /// Loop iterations (of warps, all together) after which the launch is a fault. Calls count too, and
    /// waiting at a barrier, and what threads wait for each other with (atomics, volatile loads), counts more.
    /// Checked now and then, so a launch may run a little longer. Costs nothing.
    pub iterations: Option<u64>,
    /// Instructions that the launch may execute; with one more it is a fault. Each instruction of the PTX counts
    /// once each time that a warp, or the part of one that is at the same place, executes it, however many of
    /// its lanes do, also when its guard holds for none. What only copies a
    /// kernel parameter, a special register or a constant into a register of its own is no instruction here: the
    /// register holds it from the start. A launch whose instructions are as many as that, or
    /// fewer, never faults by it; one that has more always does: on one worker right before the first
    /// one too many, on several up to 256 instructions of each worker later. The launch is some percent slower.
    pub instructions: Option<u64>,
    /// Set by another thread: the launch ends with [`FaultKind::Cancelled`](super::FaultKind).
    pub cancel: Option<&'a AtomicBool>,
}

/// All that a launch is given.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    /// Grid and block.
    pub dims: LaunchDims,
    /// The parameter block: each parameter at its offset.
    pub params: &'a [u8],
    /// See [`Limits`].
    pub limits: Limits<'a>,
    /// The blocks are spread over this pool and the calling thread; without one, or where the
    /// [`Schedule`] wants one worker, they run on the calling thread.
    pub pool: Option<&'a rayon::ThreadPool>,
    /// In which order blocks and warps run.
    pub schedule: Schedule,
    /// What is checked beside what always is.
    pub checks: Checks,
    /// Counts what is executed.
    pub profile: Option<&'a Profile>,
    /// Where `printf` writes: whole texts, from several threads.
    pub print: &'a (dyn Fn(&str) + Sync),
}

impl<'a> Launch<'a> {
    /// A launch on the calling thread, without limits and further checks.
    pub fn new(dims: LaunchDims, params: &'a [u8], print: &'a (dyn Fn(&str) + Sync)) -> Self {
        let (limits, schedule, checks) = Default::default();
        Self { dims, params, limits, pool: None, schedule, checks, profile: None, print }
    }
}

/// A launch that cannot begin, or the fault that ended it.
#[derive(Debug, Clone, PartialEq)]
pub enum LaunchError {
    /// It cannot begin.
    Invalid(Invalid),
    /// The kernel did something wrong.
    Fault(Box<Fault>),
}

/// Why a launch cannot begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// There is no such entry.
    Entry {
        /// The index given.
        index: usize,
    },
    /// A dimension of the grid is zero or too large.
    Grid([u32; 3]),
    /// A dimension of the block is zero or too large, or there are too many threads.
    Block([u32; 3]),
    /// The kernel was compiled for another block (`.reqntid`).
    RequiredBlock {
        /// The block given.
        block: [u32; 3],
        /// The one it must be.
        required: [u32; 3],
    },
    /// The block has more threads than the kernel was compiled for (`.maxntid`).
    MaxThreads {
        /// The block given.
        block: [u32; 3],
        /// The most threads.
        most: u64,
    },
    /// Too much shared memory.
    Shared {
        /// Static and dynamic bytes.
        bytes: u64,
        /// The most there can be.
        most: u32,
    },
    /// A single block needs too much host memory for registers, local and shared memory.
    Memory {
        /// Bytes of a block.
        bytes: u64,
        /// The most there can be.
        most: u64,
    },
    /// The parameter block is too short.
    Params {
        /// Its length.
        given: usize,
        /// The length it must have.
        needed: usize,
    },
}

impl LaunchDims {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let fits = |d: [u32; 3], most: [u32; 3]| d.iter().zip(most).all(|(&d, m)| d >= 1 && d <= m);
        if !fits(self.grid, MAX_GRID) {
            return Err(Invalid::Grid(self.grid));
        }
        let threads: u64 = self.block.iter().map(|&d| u64::from(d)).product();
        if !fits(self.block, MAX_BLOCK) || threads > u64::from(MAX_BLOCK_THREADS) {
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
            Self::Grid(grid) => write!(f, "a grid of {grid:?}: each must be 1 to {MAX_GRID:?}"),
            Self::Block(block) => write!(
                f,
                "a block of {block:?}: each must be 1 to {MAX_BLOCK:?}, at most {MAX_BLOCK_THREADS} threads"
            ),
            Self::RequiredBlock { block, required } => {
                write!(f, "a block of {block:?}: the kernel requires {required:?}")
            }
            Self::MaxThreads { block, most } => {
                write!(f, "a block of {block:?}: the kernel allows at most {most} threads")
            }
            Self::Shared { bytes, most } => {
                write!(f, "{bytes} bytes of shared memory: a block has at most {most}")
            }
            Self::Memory { bytes, most } => write!(
                f,
                "{bytes} bytes of registers, local and shared memory for a block: there can be {most}"
            ),
            Self::Params { given, needed } => {
                write!(f, "{given} bytes of parameters: the kernel takes {needed}")
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
