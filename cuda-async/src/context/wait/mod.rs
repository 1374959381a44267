//! The waits of steps: for submissions, for credit and for memory.
//!
//! This folder adds the waits to [`ExecutionContext`](crate::context::ExecutionContext), and holds the state that a
//! step keeps for each. It uses `tree`, `wake` and `cuda-core`. `run`, `ops`, `memory` and `kernel` use it. A typical call
//! goes from `poll_submission` in `submission` to a short `spin`, and then to a waiter of the stream in `cuda-core`. In a
//! blocking run it goes to `blocking`, which passes the wait to the thread of the run.

mod blocking;
mod credit;
mod memory;
pub(crate) mod spin;
mod submission;

pub use credit::Credit;
pub(crate) use memory::MemoryWait;
