//! Where an operation runs: its stream, the streams of its forks, and its waits.
//!
//! This folder uses `wake` and `cuda-core`. Every folder above it names [`ExecutionContext`]. A typical call goes from
//! [`ExecutionContext::enqueue`] to a stream of `cuda-core`; a wait goes from `poll_submission` to a short spin
//! (`spin`), and then to a waiter of the stream.

mod credit;
pub(crate) mod execution_context;
mod fork_streams;
mod memory_wait;
mod scope;
pub(crate) mod spin;
mod submission_wait;

pub use credit::Credit;
pub use execution_context::ExecutionContext;
pub(crate) use execution_context::Run;
pub use fork_streams::MAX_FORK_STREAMS;
pub(crate) use memory_wait::MemoryWait;
