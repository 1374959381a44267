//! The context of a run: its stream, the streams of its forks, and its waits.
//!
//! Layers, lowest first: `tree` holds the contexts and their streams; `wait` holds the waits of their steps, and
//! `nesting` limits nested polls of boxes. This folder uses `wake` and `cuda-core`. Every folder above it names
//! [`ExecutionContext`]. A typical call goes from [`ExecutionContext::enqueue`] in `tree` to a stream of `cuda-core`. A
//! wait goes from `poll_submission` in `wait` to a short spin, and then to a waiter of the stream.

mod nesting;
mod tree;
mod wait;

pub use nesting::MAX_NESTED_BOXES;
pub use tree::{ExecutionContext, MAX_FORK_STREAMS};
pub(crate) use tree::{InFlight, RunMode};
pub use wait::Credit;
pub(crate) use wait::{MemoryWait, spin};
