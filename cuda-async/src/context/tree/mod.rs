//! The contexts of a run, and the streams that they use.
//!
//! This folder holds [`ExecutionContext`] and the operations that make one context from another. It uses `cuda-core`
//! only. `wait` and every folder above `context` use it. A typical call goes from
//! [`ExecutionContext::enqueue`] to the stream of the inline root, or after a promotion to that of `shared_context`.
//!
//! The contexts of a run form a tree:
//! - The root has the stream that the policy chose. It begins inline. The first clone, fork or sibling
//!   promotes it to a shared context.
//! - The branches of a `fork` borrow their streams from the `fork_streams` of the root.
//! - A `sibling` uses the stream of its parent.
//! - A `polled_root` begins a tree of its own. A context of another tree, its poller, polls its steps.

mod allocation_rules;
mod execution_context;
mod fork;
mod fork_streams;
mod polled_root;
mod shared_context;
mod sibling;

pub use execution_context::ExecutionContext;
pub(crate) use fork::Fork;
pub use fork_streams::MAX_FORK_STREAMS;
pub(crate) use polled_root::PollerGuard;

pub(crate) use crate::context::tree::execution_context::{RunInFlight, RunMode};
