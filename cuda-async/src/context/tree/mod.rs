//! The contexts of a run, and the streams that they use.
//!
//! This folder holds [`ExecutionContext`] and the operations that make one context from another. It uses `cuda-core`
//! only. `wait` and every folder above `context` use it. A typical call goes from
//! [`ExecutionContext::enqueue`] to `inline_root`, or after a promotion to `shared_context`, which gives the stream. From
//! there it goes to that stream of `cuda-core`.
//!
//! The contexts of a run form a tree:
//! - The root has the stream that the policy chose. It begins as an `inline_root`. The first clone, fork or sibling
//!   promotes it to a shared context.
//! - The branches of a `fork` borrow their streams from the `fork_streams` of the root.
//! - A `sibling` uses the stream of its parent.
//! - A `polled_root` begins a tree of its own. A context of another tree, its poller, polls its steps.

mod allocation_rules;
mod execution_context;
mod fork;
mod fork_streams;
mod inline_root;
mod polled_root;
mod run_in_flight;
mod run_mode;
mod shared_context;
mod sibling;

pub use execution_context::ExecutionContext;
pub use fork_streams::MAX_FORK_STREAMS;
pub(crate) use run_in_flight::RunInFlight;
pub(crate) use run_mode::RunMode;
