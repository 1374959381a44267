//! What a kernel did wrong, and where.

use std::fmt;

use cuda_core::SourceLine;

use super::exec::barrier_word::MbarrierMisuse;
use super::variables::NearVariable;
use crate::memory::Nearest;

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

/// See [`Fault`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside of every allocation, or outside of shared, local or parameter memory.
    OutOfBounds {
        /// Which memory.
        space: FaultSpace,
        /// First byte of the access (an offset in spaces other than global).
        address: u64,
        /// Bytes of the access.
        bytes: u32,
        /// A store or an atomic, not a load.
        write: bool,
    },
    /// An access to memory that was freed.
    UseAfterFree {
        /// First byte of the access.
        address: u64,
        /// Bytes of the access.
        bytes: u32,
        /// A store or an atomic, not a load.
        write: bool,
    },
    /// An address that is no multiple of the access's size.
    Misaligned {
        /// Which memory.
        space: FaultSpace,
        /// First byte of the access.
        address: u64,
        /// Bytes of the access.
        bytes: u32,
        /// A store or an atomic, not a load.
        write: bool,
    },
    /// A device-side `assert` failed.
    Assert {
        /// The condition.
        message: String,
        /// The source file.
        file: String,
        /// The line in it.
        line: u32,
        /// The function.
        function: String,
    },
    /// The kernel executed `trap`.
    Trap,
    /// No thread of the block can go on.
    Deadlock {
        /// Who waits where.
        waiting: Vec<Waiting>,
    },
    /// Lanes of a warp wait at a barrier of the block that all its lanes have to execute together (`bar.sync`,
    /// `barrier.sync.aligned`), and other lanes of the warp wait elsewhere and cannot come.
    BarrierDivergence {
        /// Those at the barrier.
        at: Waiting,
        /// Those that wait elsewhere.
        elsewhere: Waiting,
    },
    /// A read of memory that nobody has written. Found where
    /// [`Checks::uninitialised`](crate::Checks::uninitialised) is on.
    Uninitialised {
        /// Which memory.
        space: FaultSpace,
        /// First byte of the access (an offset in spaces other than global).
        address: u64,
        /// Bytes of the access.
        bytes: u32,
    },
    /// Two threads of the block access the same bytes of shared memory, one of them writes, and nothing orders them.
    /// Found where [`Checks::races`](crate::Checks::races) is on.
    Race {
        /// First byte of the access, an offset in shared memory.
        address: u64,
        /// Bytes of the access.
        bytes: u32,
        /// A store or an atomic, not a load.
        write: bool,
        /// An atomic, or an access that counts as one (`volatile`, `relaxed`, ..).
        atomic: bool,
        /// The other access.
        other: Box<Racing>,
    },
    /// A kernel's `free` of an address that its `malloc` has not given, or has given and got back.
    BadFree {
        /// The address.
        address: u64,
        /// It was freed already.
        freed: bool,
    },
    /// A barrier number above 15 or an impossible thread count.
    BadBarrier {
        /// The barrier's number.
        barrier: u32,
        /// The thread count given, if one was.
        threads: Option<u32>,
    },
    /// A lane executed a `.sync` instruction whose member mask does not name it.
    LaneOutsideMask {
        /// The member mask.
        members: u32,
    },
    /// An instruction that works on matrices was executed by a part of a warp only.
    PartialWarp {
        /// The lanes that executed it.
        lanes: u32,
    },
    /// An mbarrier that cannot be used so.
    BadMbarrier {
        /// Its address in shared memory.
        address: u64,
        /// What is wrong.
        misuse: MbarrierMisuse,
    },
    /// An asynchronous copy of a number of bytes that there cannot be: a bulk copy has a multiple of 16, any other
    /// reads no more than it writes.
    BadCopy {
        /// The bytes.
        bytes: u32,
    },
    /// A block of the cluster that is not there: each block is a cluster of its own.
    NoSuchBlock {
        /// Its rank in the cluster.
        rank: u32,
    },
    /// Calls are nested too deeply, or local memory or the registers for their frames are used up.
    CallDepth {
        /// The limit: calls.
        limit: u32,
    },
    /// The blocks of the launch need too much host memory for registers, local and shared memory, or
    /// the host has less.
    LaunchMemory {
        /// The limit, in bytes.
        limit: u64,
    },
    /// An indirect call to an address that is no function's.
    BadCall {
        /// The address.
        address: u64,
    },
    /// `brx.idx` with an index outside of its table.
    BadBranch {
        /// The index.
        index: u32,
        /// How many targets there are.
        targets: u32,
    },
    /// The launch used up its budget of loop iterations.
    Budget {
        /// The budget.
        limit: u64,
    },
    /// The launch used up its budget of instructions.
    InstructionBudget {
        /// The budget.
        limit: u64,
    },
    /// The launch was cancelled.
    Cancelled,
    /// A printf format or argument that cannot be read.
    BadFormat,
}

/// Which memory an access was to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FaultSpace {
    Global,
    Shared,
    Local,
    Param,
}

/// The earlier one of two accesses that race.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Racing {
    /// `threadIdx` of the thread, in the same block.
    pub thread: [u32; 3],
    /// Line in the PTX text.
    pub line: u32,
    /// Line in the source, if the PTX names it.
    pub source: Option<SourceLine>,
    /// A store or an atomic, not a load.
    pub write: bool,
    /// An atomic, or an access that counts as one.
    pub atomic: bool,
}

/// Threads that wait, for [`FaultKind::Deadlock`] and [`FaultKind::BarrierDivergence`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// The warp in its block.
    pub warp: u32,
    /// Its lanes.
    pub lanes: u32,
    /// What they wait for.
    pub waits_for: WaitsFor,
    /// Line in the PTX text.
    pub line: u32,
    /// Line in the source, if the PTX names it.
    pub source: Option<SourceLine>,
}

impl FaultKind {
    /// Where in which memory an access was, for faults of accesses: (space, first byte, bytes).
    pub fn access(&self) -> Option<(FaultSpace, u64, u32)> {
        match *self {
            Self::OutOfBounds { space, address, bytes, .. }
            | Self::Misaligned { space, address, bytes, .. }
            | Self::Uninitialised { space, address, bytes } => Some((space, address, bytes)),
            Self::UseAfterFree { address, bytes, .. } => Some((FaultSpace::Global, address, bytes)),
            Self::Race { address, bytes, .. } => Some((FaultSpace::Shared, address, bytes)),
            Self::BadFree { address, .. } => Some((FaultSpace::Global, address, 1)),
            _ => None,
        }
    }
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

fn access(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

/// `PTX line 7, k.cu:3:5`.
fn place(f: &mut fmt::Formatter<'_>, line: u32, source: Option<&SourceLine>) -> fmt::Result {
    write!(f, "PTX line {line}")?;
    source.map_or(Ok(()), |source| write!(f, ", {source}"))
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { space, address, bytes, write } => {
                let how = access(*write);
                write!(f, "{how} of {bytes} bytes out of bounds of {space} memory at {address:#x}")
            }
            Self::UseAfterFree { address, bytes, write } => {
                write!(f, "{} of {bytes} bytes after free at {address:#x}", access(*write))
            }
            Self::Misaligned { space, address, bytes, write } => {
                let how = access(*write);
                write!(f, "misaligned {how} of {bytes} bytes in {space} memory at {address:#x}")
            }
            Self::Assert { message, file, line, function } => {
                write!(f, "assertion `{message}` failed at {file}:{line} in {function}")
            }
            Self::Trap => f.write_str("trap"),
            Self::Deadlock { waiting } => {
                f.write_str("deadlock: no thread of the block can go on")?;
                waiting.iter().try_for_each(|w| write!(f, "; {w}"))
            }
            Self::BarrierDivergence { at, elsewhere } => write!(
                f,
                "barrier divergence: all lanes of a warp have to come to the same barrier, but {at}; {elsewhere}"
            ),
            Self::Uninitialised { space, address, bytes } => write!(
                f,
                "read of {bytes} bytes of {space} memory at {address:#x} that nobody has written"
            ),
            Self::Race { address, bytes, write, atomic, other } => {
                let how = Racing::how(*write, *atomic);
                write!(f, "race: {how} of {bytes} bytes of shared memory at {address:#x}; {other}")
            }
            Self::BadFree { address, freed: true } => {
                write!(f, "free of {address:#x}, which was freed already")
            }
            Self::BadFree { address, freed: false } => {
                write!(f, "free of {address:#x}, which the kernel's malloc has not given")
            }
            Self::BadBarrier { barrier, threads: Some(n) } => {
                write!(f, "barrier {barrier} cannot be used for {n} threads")
            }
            Self::BadBarrier { barrier, threads: None } => {
                write!(f, "there is no barrier {barrier}")
            }
            Self::LaneOutsideMask { members } => {
                write!(f, "the executing lane is not in the member mask {members:#010x}")
            }
            Self::PartialWarp { lanes } => {
                write!(f, "only lanes {lanes:#010x} execute what takes all 32 lanes of a warp")
            }
            Self::BadMbarrier { address, misuse } => {
                write!(f, "mbarrier in shared memory at {address:#x}: {misuse}")
            }
            Self::BadCopy { bytes } => {
                write!(f, "an asynchronous copy of {bytes} bytes: too many, or no multiple of 16")
            }
            Self::NoSuchBlock { rank } => {
                write!(f, "block {rank} of a cluster of one: clusters are not supported")
            }
            Self::CallDepth { limit } => write!(
                f,
                "stack overflow: more than {limit} nested calls, or local memory or registers used up"
            ),
            Self::LaunchMemory { limit } => write!(
                f,
                "the running blocks need too much registers, local and shared memory: at most {limit} bytes"
            ),
            Self::BadCall { address } => write!(f, "call of {address:#x}, which is no function"),
            Self::BadBranch { index, targets } => {
                write!(f, "indexed branch to {index} of {targets} targets")
            }
            Self::Budget { limit } => write!(f, "the budget of {limit} loop iterations is used up"),
            Self::InstructionBudget { limit } => write!(
                f,
                "the budget of {limit} instructions is used up: a loop without end, or too small a budget"
            ),
            Self::Cancelled => f.write_str("the launch was cancelled"),
            Self::BadFormat => f.write_str("printf format that cannot be read"),
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { warp, lanes, line, source, .. } = self;
        write!(f, "warp {warp} lanes {lanes:#010x} ")?;
        match self.waits_for {
            WaitsFor::Warp => f.write_str("for their warp, "),
            WaitsFor::Barrier(n) => write!(f, "at barrier {n}, "),
            WaitsFor::Mbarrier(at) => write!(f, "at the mbarrier at {at:#x}, "),
            WaitsFor::Cluster => f.write_str("at the cluster's barrier, "),
        }?;
        place(f, *line, source.as_ref())
    }
}

impl Racing {
    fn how(write: bool, atomic: bool) -> &'static str {
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
