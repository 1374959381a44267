//! The messages of faults.

use std::fmt;

use super::kind::FaultKind;
use super::racing::Racing;

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
