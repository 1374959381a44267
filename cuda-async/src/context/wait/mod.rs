//! The waits of steps: for submissions, for credit and for memory.
//!
//! This folder adds the waits to [`ExecutionContext`](crate::context::ExecutionContext), and holds the state that a
//! step keeps for each. It uses `tree`, `wake` and `cuda-core`. `run`, `ops`, `memory` and `kernel` use it. A typical
//! call goes from `poll_submission` in `submission` to a short `spin`, and then to a waiter of the stream in
//! `cuda-core`. In a blocking run, `block_on` passes the wait to the thread of the run.

pub(crate) mod spin;
mod submission;

pub use crate::context::wait::submission::CreditWait;
pub(crate) use crate::context::wait::submission::MemoryWait;
