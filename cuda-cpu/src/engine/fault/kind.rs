//! What a kernel can do wrong.

use super::racing::Racing;
use super::space::FaultSpace;
use super::waiting::Waiting;
use crate::engine::exec::barrier_word::MbarrierMisuse;

/// See [`Fault`](super::Fault).
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
    /// A read of memory that was never written. Found where
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
    /// Threads come to a barrier for another number of threads than those who have come there before.
    BarrierCount {
        /// The barrier's number.
        barrier: u32,
        /// The thread count given.
        threads: u32,
        /// The one that others gave.
        others: u32,
    },
    /// Threads come to a barrier for a reduction, and others are there for another one, or for none.
    BarrierPurpose {
        /// The barrier's number.
        barrier: u32,
    },
    /// The barrier of the cluster: a second arrival without a wait, or a wait without an arrival.
    ClusterBarrier {
        /// The thread had arrived.
        arrived: bool,
    },
    /// A lane executed a `.sync` instruction whose member mask does not name it.
    LaneOutsideMask {
        /// The member mask.
        members: u32,
    },
    /// Something depends on what a shuffle took from a lane that takes no part in it: the member mask does not name it,
    /// or it has exited. Found where [`Checks::uninitialised`](crate::Checks::uninitialised) is on.
    AbsentLane {
        /// The lane whose value was wanted.
        lane: u32,
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
    /// `alloca` of more than is left of the thread's local memory.
    StackOverflow {
        /// The bytes that were wanted.
        bytes: u64,
        /// The limit: bytes of local memory of a thread.
        limit: u32,
    },
    /// `stackrestore` of a place that is outside of what the function has on its stack.
    BadStackPointer {
        /// The address in local memory.
        address: u64,
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
    /// An indirect call to an address that is no function's, or a kernel's.
    BadCall {
        /// The address.
        address: u64,
    },
    /// An indirect call of a function that takes more than it is given, or gives less than is taken.
    CallMismatch {
        /// The function.
        function: String,
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
