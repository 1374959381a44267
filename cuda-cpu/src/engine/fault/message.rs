//! The messages of faults.

use std::fmt;

use super::kind::FaultKind;
use super::racing::Racing;

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { .. }
            | Self::UseAfterFree { .. }
            | Self::Misaligned { .. }
            | Self::Uninitialised { .. }
            | Self::Race { .. }
            | Self::BadFree { .. }
            | Self::NoSuchBlock { .. } => memory_access(self, f),
            Self::Deadlock { .. }
            | Self::BarrierDivergence { .. }
            | Self::BadBarrier { .. }
            | Self::BarrierCount { .. }
            | Self::BarrierPurpose { .. }
            | Self::ClusterBarrier { .. } => barrier(self, f),
            Self::LaneOutsideMask { .. } | Self::AbsentLane { .. } | Self::PartialWarp { .. } => {
                collective(self, f)
            }
            Self::BadMbarrier { .. } | Self::BadCopy { .. } => asynchronous_copy(self, f),
            Self::CallDepth { .. }
            | Self::StackOverflow { .. }
            | Self::BadStackPointer { .. }
            | Self::BadCall { .. }
            | Self::CallMismatch { .. }
            | Self::BadBranch { .. } => control_flow(self, f),
            Self::LaunchMemory { .. } | Self::Budget { .. } | Self::InstructionBudget { .. } => {
                limit(self, f)
            }
            Self::Assert { message, file, line, function } => {
                write!(f, "assertion `{message}` failed at {file}:{line} in {function}")
            }
            Self::Trap => f.write_str("trap"),
            Self::Cancelled => f.write_str("the launch was cancelled"),
            Self::BadFormat => f.write_str("invalid printf format or argument"),
        }
    }
}

fn memory_access(kind: &FaultKind, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match kind {
        FaultKind::OutOfBounds { space, address, bytes, write } => {
            let how = access(*write);
            write!(f, "{how} of {bytes} bytes out of bounds of {space} memory at {address:#x}")
        }
        FaultKind::UseAfterFree { address, bytes, write } => {
            write!(f, "{} of {bytes} bytes after free at {address:#x}", access(*write))
        }
        FaultKind::Misaligned { space, address, bytes, write } => {
            let how = access(*write);
            write!(f, "misaligned {how} of {bytes} bytes in {space} memory at {address:#x}")
        }
        FaultKind::Uninitialised { space, address, bytes } => write!(
            f,
            "read of {bytes} bytes of {space} memory at {address:#x} that was never written"
        ),
        FaultKind::Race { address, bytes, write, atomic, other } => {
            let how = Racing::how(*write, *atomic);
            write!(f, "race: {how} of {bytes} bytes of shared memory at {address:#x}; {other}")
        }
        FaultKind::BadFree { address, freed: true } => {
            write!(f, "free of {address:#x}, which was freed already")
        }
        FaultKind::BadFree { address, freed: false } => {
            write!(f, "free of {address:#x}, which the kernel's malloc did not return")
        }
        FaultKind::NoSuchBlock { rank, blocks } => {
            write!(f, "access to block {rank} of the cluster: the cluster has {blocks}")
        }
        other => other_family(other, f),
    }
}

fn barrier(kind: &FaultKind, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match kind {
        FaultKind::Deadlock { waiting } => {
            f.write_str("deadlock: no thread of the block can make progress")?;
            waiting.iter().try_for_each(|w| write!(f, "; {w}"))
        }
        FaultKind::BarrierDivergence { at, elsewhere } => write!(
            f,
            "barrier divergence: all lanes of a warp must reach the same barrier, but {at}; {elsewhere}"
        ),
        FaultKind::BadBarrier { barrier, threads: Some(n) } => write!(
            f,
            "barrier {barrier} with a count of {n} threads: it must be a multiple of 32 up to 1024"
        ),
        FaultKind::BadBarrier { barrier, threads: None } => {
            write!(f, "barrier {barrier} does not exist: the number must be 0 to 15")
        }
        FaultKind::BarrierCount { barrier, threads, others } => write!(
            f,
            "barrier {barrier} with a count of {threads} threads, but earlier threads arrived with a count of {others}"
        ),
        FaultKind::BarrierPurpose { barrier } => write!(
            f,
            "barrier {barrier} with another reduction than that of earlier arrivals, or only one of them has a reduction"
        ),
        FaultKind::ClusterBarrier { arrived: true } => {
            f.write_str("second arrival at the cluster barrier without a wait after the first")
        }
        FaultKind::ClusterBarrier { arrived: false } => {
            f.write_str("wait at the cluster barrier without a preceding arrival")
        }
        other => other_family(other, f),
    }
}

/// Writes the messages of instructions that the lanes of a warp execute together.
fn collective(kind: &FaultKind, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match kind {
        FaultKind::LaneOutsideMask { members } => {
            write!(f, "the executing lane is not in the member mask {members:#010x}")
        }
        FaultKind::AbsentLane { lane, members } => {
            write!(f, "read of an undefined shuffle result: source lane {lane} ")?;
            match members >> lane & 1 {
                0 => write!(f, "is not in the member mask {members:#010x}"),
                _ => f.write_str("has exited or does not exist"),
            }
        }
        FaultKind::PartialWarp { lanes } => write!(
            f,
            "only lanes {lanes:#010x} execute an instruction that requires all 32 lanes of the warp"
        ),
        other => other_family(other, f),
    }
}

/// Writes the messages of asynchronous copies and of the mbarriers that they complete on.
fn asynchronous_copy(kind: &FaultKind, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match kind {
        FaultKind::BadMbarrier { address, misuse } => {
            write!(f, "mbarrier in shared memory at {address:#x}: {misuse}")
        }
        FaultKind::BadCopy { bytes } => {
            write!(f, "asynchronous copy of {bytes} bytes: too many, or not a multiple of 16")
        }
        other => other_family(other, f),
    }
}

/// Writes the messages of calls, branches and the stack.
fn control_flow(kind: &FaultKind, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match kind {
        FaultKind::CallDepth { limit } => write!(
            f,
            "stack overflow: more than {limit} nested calls, or frames that exceed the local memory or the registers"
        ),
        FaultKind::StackOverflow { bytes, limit } => write!(
            f,
            "stack overflow: alloca of {bytes} bytes exceeds the {limit} bytes of local memory of a thread"
        ),
        FaultKind::BadStackPointer { address } => {
            write!(f, "stackrestore of {address:#x}, which is outside of the function's stack")
        }
        FaultKind::BadCall { address } => {
            write!(f, "call of {address:#x}, which is not the address of a device function")
        }
        FaultKind::CallMismatch { function } => write!(
            f,
            "call of {function} with too few or too small arguments, or for more results than it has"
        ),
        FaultKind::BadBranch { index, targets } => {
            write!(f, "indexed branch with index {index}, but the table has {targets} targets")
        }
        other => other_family(other, f),
    }
}

fn limit(kind: &FaultKind, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match kind {
        FaultKind::LaunchMemory { limit } => write!(
            f,
            "the running blocks need too much host memory for registers, local and shared memory: the limit is {limit} bytes"
        ),
        FaultKind::Budget { limit } => {
            write!(f, "the budget of {limit} loop iterations is used up")
        }
        FaultKind::InstructionBudget { limit } => write!(
            f,
            "the budget of {limit} instructions is used up: a loop without end, or too small a budget"
        ),
        other => other_family(other, f),
    }
}

/// Writes the fields of a kind that was given to the function of another family, so that its message is never empty.
fn other_family(kind: &FaultKind, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    debug_assert!(false, "{kind:?} is in the wrong family of messages");
    write!(f, "{kind:?}")
}

fn access(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}
