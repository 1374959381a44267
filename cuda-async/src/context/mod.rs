//! The context of a run: its stream, the streams of its forks, and its waits.
//!
//! This folder uses `wake` and `cuda-core`. Every folder above it names [`ExecutionContext`]. A typical call goes from
//! [`ExecutionContext::enqueue`] to a stream of `cuda-core`. A wait goes from `poll_submission` to a short spin
//! (`spin`), and then to a waiter of the stream.

mod blocking_wait;
mod credit;
mod driver;
mod execution_context;
mod fork;
mod fork_streams;
mod inline_root;
mod memory_wait;
mod nesting;
mod run_mode;
mod shared;
mod sibling;
pub(crate) mod spin;
mod submission_wait;

pub use credit::Credit;
pub use execution_context::ExecutionContext;
pub use fork_streams::MAX_FORK_STREAMS;
pub(crate) use memory_wait::MemoryWait;
pub use nesting::MAX_NESTED_BOXES;
pub(crate) use run_mode::{InFlight, RunMode};
