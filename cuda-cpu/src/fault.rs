//! Faults: errors of a kernel with their location.
//!
//! A fault is plain data with a message. This module uses only `memory`. Handlers, observers and the scheduler create a
//! [`FaultKind`], `launch` adds the place to make a [`Fault`], and `device` reports it.

use std::fmt;

use cuda_core::SourceLine;

use crate::memory::{Nearest, count};

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

/// The kind of a [`Fault`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside of every allocation, or outside of shared, local or parameter memory.
    OutOfBounds {
        /// The memory of the access.
        space: FaultSpace,
        /// First byte of the access. It is an offset in spaces other than global memory.
        address: u64,
        /// Size of the access in bytes.
        bytes: u32,
        /// Whether the access is a store or an atomic, not a load.
        write: bool,
    },
    /// An access to freed memory.
    UseAfterFree {
        /// First byte of the access.
        address: u64,
        /// Size of the access in bytes.
        bytes: u32,
        /// Whether the access is a store or an atomic, not a load.
        write: bool,
    },
    /// An address that is not a multiple of the access's alignment.
    Misaligned {
        /// The memory of the access.
        space: FaultSpace,
        /// First byte of the access.
        address: u64,
        /// Size of the access in bytes.
        bytes: u32,
        /// Whether the access is a store or an atomic, not a load.
        write: bool,
    },
    /// A device-side `assert` failed.
    Assert {
        /// The condition.
        message: String,
        /// The source file.
        file: String,
        /// The line in the source file.
        line: u32,
        /// The function that contains the assertion.
        function: String,
    },
    /// The kernel executed `trap`.
    Trap,
    /// No thread of the block can continue.
    Deadlock {
        /// The positions and conditions of the waiting threads.
        waiting: Vec<Waiting>,
    },
    /// A warp is divided at a barrier that all its lanes must execute together (`bar.sync`, `barrier.sync.aligned`).
    /// Some lanes wait there, while other lanes wait elsewhere and cannot arrive.
    BarrierDivergence {
        /// The lanes at the barrier.
        at: Waiting,
        /// The lanes that wait elsewhere.
        elsewhere: Waiting,
    },
    /// A read of memory that was never written. Detected if [`Checks::uninitialized`](crate::Checks::uninitialized) is
    /// on.
    Uninitialized {
        /// The memory of the access.
        space: FaultSpace,
        /// First byte of the access. It is an offset in spaces other than global memory.
        address: u64,
        /// Size of the access in bytes.
        bytes: u32,
    },
    /// Two threads of the block access the same bytes of shared memory, at least one of them writes, and the accesses
    /// are not ordered. Detected if [`Checks::races`](crate::Checks::races) is on.
    Race {
        /// First byte of the access, as an offset in shared memory.
        address: u64,
        /// Size of the access in bytes.
        bytes: u32,
        /// Whether the access is a store or an atomic, not a load.
        write: bool,
        /// Whether the access is an atomic, or counts as one (such as `volatile` and `relaxed`).
        atomic: bool,
        /// The other access.
        other: Box<Racing>,
    },
    /// A write through an argument that the launch only reads. Detected if
    /// [`Checks::read_only`](crate::Checks::read_only) is on.
    ReadOnlyArgument {
        /// First byte of the access.
        address: u64,
        /// Size of the access in bytes.
        bytes: u32,
        /// The index of the parameter.
        parameter: u32,
        /// The name of the parameter in the PTX.
        name: Box<str>,
    },
    /// A kernel's `free` of an address that is not an active allocation of its `malloc`.
    BadFree {
        /// The address.
        address: u64,
        /// Whether the allocation was freed already.
        freed: bool,
    },
    /// A barrier number above 15 or an invalid thread count.
    BadBarrier {
        /// The barrier's number.
        barrier: u32,
        /// The given thread count, if any.
        threads: Option<u32>,
    },
    /// Threads arrive at a barrier with another thread count than earlier threads.
    BarrierCount {
        /// The barrier's number.
        barrier: u32,
        /// The given thread count.
        threads: u32,
        /// The thread count of the earlier threads.
        others: u32,
    },
    /// Threads arrive at a barrier with another reduction than earlier threads. This includes threads without a
    /// reduction among threads with one.
    BarrierPurpose {
        /// The barrier's number.
        barrier: u32,
    },
    /// A thread arrives at the cluster barrier twice without a wait, or waits without an arrival.
    ClusterBarrier {
        /// Whether the thread had already arrived.
        arrived: bool,
    },
    /// A lane executed a `.sync` instruction whose member mask does not contain it.
    LaneOutsideMask {
        /// The member mask.
        members: u32,
    },
    /// A result depends on a value that a shuffle took from an absent lane. Such a lane has exited or is not in the
    /// member mask. Detected if [`Checks::uninitialized`](crate::Checks::uninitialized) is on.
    AbsentLane {
        /// The source lane of the shuffle.
        lane: u32,
        /// The member mask.
        members: u32,
    },
    /// Only a part of a warp executed a matrix instruction.
    PartialWarp {
        /// The lanes that executed it.
        lanes: u32,
    },
    /// An invalid use of an mbarrier.
    BadMbarrier {
        /// Its address in shared memory.
        address: u64,
        /// The misuse.
        misuse: MbarrierMisuse,
    },
    /// An asynchronous copy with an invalid size. The size of a bulk copy is a multiple of 16 bytes. Other copies read
    /// at most as many bytes as they write.
    BadCopy {
        /// The size in bytes.
        bytes: u32,
    },
    /// An access to a block that the cluster does not have.
    NoSuchBlock {
        /// Its rank in the cluster.
        rank: u32,
        /// The number of blocks of the cluster.
        blocks: u32,
    },
    /// `alloca` of more than the thread's remaining local memory.
    StackOverflow {
        /// The requested bytes.
        bytes: u64,
        /// The maximum local memory of a thread in bytes.
        limit: u32,
    },
    /// `stackrestore` of an address outside of the function's stack.
    BadStackPointer {
        /// The address in local memory.
        address: u64,
    },
    /// Calls are nested too deeply, or their frames exceed the local memory or the registers.
    CallDepth {
        /// The maximum call depth.
        limit: u32,
    },
    /// The blocks of the launch need more host memory than the limit, or than the host has. They need it for registers,
    /// local memory and shared memory.
    LaunchMemory {
        /// The limit in bytes.
        limit: u64,
    },
    /// An indirect call to an address that belongs to no device function.
    BadCall {
        /// The address.
        address: u64,
    },
    /// The target of an indirect call takes more arguments than are passed, or returns fewer results than are expected.
    CallMismatch {
        /// The name of the function.
        function: String,
    },
    /// `brx.idx` with an index outside of its table.
    BadBranch {
        /// The index.
        index: u32,
        /// The number of targets in the table.
        targets: u32,
    },
    /// The launch exceeded its limit of loop iterations.
    Budget {
        /// The limit.
        limit: u64,
    },
    /// The launch exceeded its limit of instructions.
    InstructionBudget {
        /// The limit.
        limit: u64,
    },
    /// The launch was cancelled.
    Cancelled,
    /// An invalid `printf` format or argument.
    BadFormat,
}

impl FaultKind {
    /// Returns the memory, first byte and size of the access, for faults of accesses.
    pub fn access(&self) -> Option<(FaultSpace, u64, u32)> {
        match *self {
            Self::OutOfBounds { space, address, bytes, .. }
            | Self::Misaligned { space, address, bytes, .. }
            | Self::Uninitialized { space, address, bytes } => Some((space, address, bytes)),
            Self::UseAfterFree { address, bytes, .. }
            | Self::ReadOnlyArgument { address, bytes, .. } => {
                Some((FaultSpace::Global, address, bytes))
            }
            Self::Race { address, bytes, .. } => Some((FaultSpace::Shared, address, bytes)),
            Self::BadFree { address, .. } => Some((FaultSpace::Global, address, 1)),
            _ => None,
        }
    }
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
                f.write_str("deadlock: no thread of the block can make progress")?;
                waiting.iter().try_for_each(|w| write!(f, "; {w}"))
            }
            Self::BarrierDivergence { at, elsewhere } => write!(
                f,
                "barrier divergence: all lanes of a warp must reach the same barrier, but {at}; {elsewhere}"
            ),
            Self::Uninitialized { space, address, bytes } => write!(
                f,
                "read of {bytes} bytes of {space} memory at {address:#x} that was never written"
            ),
            Self::Race { address, bytes, write, atomic, other } => {
                let how = Racing::how(*write, *atomic);
                write!(f, "race: {how} of {bytes} bytes of shared memory at {address:#x}; {other}")
            }
            Self::ReadOnlyArgument { bytes, parameter, name, .. } => write!(
                f,
                "write of {bytes} bytes through parameter {parameter} (`{name}`), whose argument the launch only reads; \
                 pass memory that the kernel may write: by value, as `&mut` or as `SliceMut`"
            ),
            Self::BadFree { address, freed: true } => {
                write!(f, "free of {address:#x}, which was freed already")
            }
            Self::BadFree { address, freed: false } => {
                write!(f, "free of {address:#x}, which the kernel's malloc did not return")
            }
            Self::BadBarrier { barrier, threads: Some(n) } => {
                write!(
                    f,
                    "barrier {barrier} with a count of {n} threads: it must be a multiple of 32 up to 1024"
                )
            }
            Self::BadBarrier { barrier, threads: None } => {
                write!(f, "barrier {barrier} does not exist: the number must be 0 to 15")
            }
            Self::BarrierCount { barrier, threads, others } => write!(
                f,
                "barrier {barrier} with a count of {threads} threads, but earlier threads arrived with a count of {others}"
            ),
            Self::BarrierPurpose { barrier } => write!(
                f,
                "barrier {barrier} with another reduction than that of earlier arrivals, or only one of them has a reduction"
            ),
            Self::ClusterBarrier { arrived: true } => {
                f.write_str("second arrival at the cluster barrier without a wait after the first")
            }
            Self::ClusterBarrier { arrived: false } => {
                f.write_str("wait at the cluster barrier without a preceding arrival")
            }
            Self::LaneOutsideMask { members } => {
                write!(f, "the executing lane is not in the member mask {members:#010x}")
            }
            Self::AbsentLane { lane, members } => {
                write!(f, "read of an undefined shuffle result: source lane {lane} ")?;
                match members >> lane & 1 {
                    0 => write!(f, "is not in the member mask {members:#010x}"),
                    _ => f.write_str("has exited or does not exist"),
                }
            }
            Self::PartialWarp { lanes } => {
                write!(
                    f,
                    "only lanes {lanes:#010x} execute an instruction that requires all 32 lanes of the warp"
                )
            }
            Self::BadMbarrier { address, misuse } => {
                write!(f, "mbarrier in shared memory at {address:#x}: {misuse}")
            }
            Self::BadCopy { bytes } => {
                write!(f, "asynchronous copy of {bytes} bytes: too many, or not a multiple of 16")
            }
            Self::NoSuchBlock { rank, blocks } => {
                write!(f, "access to block {rank} of the cluster: the cluster has {blocks}")
            }
            Self::CallDepth { limit } => write!(
                f,
                "stack overflow: more than {limit} nested calls, or frames that exceed the local memory or the registers"
            ),
            Self::StackOverflow { bytes, limit } => write!(
                f,
                "stack overflow: alloca of {bytes} bytes exceeds the {limit} bytes of local memory of a thread"
            ),
            Self::BadStackPointer { address } => {
                write!(f, "stackrestore of {address:#x}, which is outside of the function's stack")
            }
            Self::LaunchMemory { limit } => write!(
                f,
                "the running blocks need too much host memory for registers, local and shared memory: the limit is {limit} bytes"
            ),
            Self::BadCall { address } => {
                write!(f, "call of {address:#x}, which is not the address of a device function")
            }
            Self::CallMismatch { function } => write!(
                f,
                "call of {function} with too few or too small arguments, or for more results than it has"
            ),
            Self::BadBranch { index, targets } => {
                write!(f, "indexed branch with index {index}, but the table has {targets} targets")
            }
            Self::Budget { limit } => write!(f, "the budget of {limit} loop iterations is used up"),
            Self::InstructionBudget { limit } => write!(
                f,
                "the budget of {limit} instructions is used up: a loop without end, or too small a budget"
            ),
            Self::Cancelled => f.write_str("the launch was cancelled"),
            Self::BadFormat => f.write_str("invalid printf format or argument"),
        }
    }
}

fn access(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

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

/// An invalid use of an mbarrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MbarrierMisuse {
    /// The mbarrier was not initialized, or has been invalidated.
    NotInitialized,
    /// The count is 0, or above 2^20 - 1.
    Count(u32),
    /// The arrivals exceed those that are pending in this phase.
    TooManyArrivals {
        /// The number of pending arrivals.
        pending: u32,
        /// The number of new arrivals.
        count: u32,
    },
    /// The arrival would complete the phase, but has `.noComplete`.
    Completes,
    /// The pending bytes are above 2^20 - 1, or below -(2^20 - 1).
    Bytes(i64),
}

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

/// Waiting lanes of a warp, for [`FaultKind::Deadlock`] and
/// [`FaultKind::BarrierDivergence`].
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

/// The variable of the PTX that contains an address or is nearest to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearVariable {
    /// The variable's name in the PTX. For a variable inside a function it is mangled with the function's name.
    pub name: String,
    /// The variable's address. In shared memory it is an offset.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Distance in bytes from the variable's first byte to the address. It is negative before the variable, and at
    /// least the variable's size behind it.
    pub offset: i64,
}

impl NearVariable {
    /// Returns the name in the source, if it can be derived from the PTX name. Compilers name a variable `tile` of a
    /// kernel `k` similar to `_ZZ1kE4tile`.
    pub fn source_name(&self) -> &str {
        local_name(&self.name).unwrap_or(&self.name)
    }
}

/// Returns the last component of a mangled local name: `E`, the length, the name, and perhaps `_` and a number.
fn local_name(mangled: &str) -> Option<&str> {
    let inside = mangled.strip_prefix("_ZZ")?;
    inside.rmatch_indices('E').find_map(|(at, _)| {
        let rest = &inside[at + 1..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let length: usize = rest[..digits].parse().ok()?;
        let name = rest[digits..].get(..length).filter(|name| !name.is_empty())?;
        let behind = &rest[digits + length..];
        let number = behind.strip_prefix('_').unwrap_or("0");
        number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_').then_some(name)
    })
}

impl fmt::Display for NearVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, Self { address, size, offset, .. }) = (self.source_name(), self);
        if *size == 0 {
            return write!(f, "`{name}` is dynamic shared memory, and the launch has none");
        }
        let (before, after) = (offset.unsigned_abs(), offset.saturating_sub_unsigned(*size));
        match after {
            _ if *offset < 0 => write!(f, "{} before ", count(before))?,
            // Distances are measured from the last byte, as for allocations: the first byte past the end is 1 byte
            // after.
            after if after >= 0 => write!(f, "{} after ", count(after.unsigned_abs() + 1))?,
            _ => write!(f, "at byte {offset} of ")?,
        }
        write!(f, "`{name}` ({} at {address:#x})", count(*size))
    }
}

/// Writes a position as in `PTX line 7, k.cu:3:5`.
fn place(f: &mut fmt::Formatter<'_>, line: u32, source: Option<&SourceLine>) -> fmt::Result {
    write!(f, "PTX line {line}")?;
    source.map_or(Ok(()), |source| write!(f, ", {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_of_local_variables() {
        for (mangled, name) in [
            ("_ZZ10race_blockE4tile", Some("tile")),
            ("_ZZN3lib6kernelIfLi4EEEvPT_iE5cache_0", Some("cache")),
            ("_ZZ1kE3EEE", Some("EEE")),
            ("_ZZ1kE1x_12", Some("x")),
            ("tile", None),
            ("_Z1kv", None),
            ("_ZZ1kE9tile", None),
            ("_ZZE", None),
            ("_ZZ1kE4tilé", None),
            ("_ZZ1kE99999999999999999999x", None),
        ] {
            assert_eq!(local_name(mangled), name, "{mangled}");
        }
    }
}
