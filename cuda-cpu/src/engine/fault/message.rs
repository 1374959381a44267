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
                f.write_str("deadlock: no thread of the block can go on")?;
                waiting.iter().try_for_each(|w| write!(f, "; {w}"))
            }
            Self::BarrierDivergence { at, elsewhere } => write!(
                f,
                "barrier divergence: all lanes of a warp have to come to the same barrier, but {at}; {elsewhere}"
            ),
            Self::Uninitialised { space, address, bytes } => write!(
                f,
                "read of {bytes} bytes of {space} memory at {address:#x} that was never written"
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
            Self::BarrierCount { barrier, threads, others } => write!(
                f,
                "barrier {barrier} for {threads} threads, where others wait for {others} threads"
            ),
            Self::BarrierPurpose { barrier } => write!(
                f,
                "barrier {barrier} for a reduction, and for another one, or none, by others that are there"
            ),
            Self::ClusterBarrier { arrived: true } => f.write_str(
                "a second arrival at the cluster's barrier, without a wait between them",
            ),
            Self::ClusterBarrier { arrived: false } => {
                f.write_str("a wait at the cluster's barrier, without an arrival before")
            }
            Self::LaneOutsideMask { members } => {
                write!(f, "the executing lane is not in the member mask {members:#010x}")
            }
            Self::AbsentLane { lane, members } if members >> lane & 1 != 0 => write!(
                f,
                "use of what a shuffle took from lane {lane}, which has exited or never was: its value is undefined"
            ),
            Self::AbsentLane { lane, members } => write!(
                f,
                "use of what a shuffle took from lane {lane}, which the member mask {members:#010x} does not name: its \
                 value is undefined"
            ),
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
            Self::StackOverflow { bytes, limit } => write!(
                f,
                "stack overflow: alloca of {bytes} bytes, of {limit} bytes of local memory for each thread"
            ),
            Self::BadStackPointer { address } => {
                write!(
                    f,
                    "stackrestore of {address:#x}, outside of what the function has on its stack"
                )
            }
            Self::LaunchMemory { limit } => write!(
                f,
                "the running blocks need too much registers, local and shared memory: at most {limit} bytes"
            ),
            Self::BadCall { address } => {
                write!(f, "call of {address:#x}, which is no function that can be called")
            }
            Self::CallMismatch { function } => write!(
                f,
                "call of {function} with too few or too small arguments, or for more results than it has"
            ),
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

fn access(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}
