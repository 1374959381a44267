//! The kinds of faults of a kernel.

use super::mbarrier::MbarrierMisuse;
use super::racing::Racing;
use super::space::FaultSpace;
use super::waiting::Waiting;

/// The kind of a [`Fault`](super::Fault).
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
    /// A write through an argument that the launch only reads. Detected if [`Checks::read_only`](crate::Checks::read_only)
    /// is on.
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
