//! The context in which an operation runs: its streams, and its waits for the device.
//!
//! A closure of [`with_context`](crate::with_context) or [`then_with_context`](crate::DeviceOp::then_with_context), and
//! an operation of your own ([`Submit`](crate::op::Submit)), get an [`ExecutionContext`]. It gives them the device and
//! the stream of the run:
//!
//! ```
//! use cuda_async::prelude::*;
//! let doubled = h2d(vec![1u8, 2]).then_with_context(|cx, x| {
//!     assert!(cx.device().info().memory > 0);
//!     cx.enqueue(|stream| {
//!         let mut both = DeviceBuffer::uninitialized(stream, 2 * x.len())?;
//!         both.slice_mut(..2)?.copy_from(stream, x.as_slice())?;
//!         both.slice_mut(2..)?.copy_from(stream, x.as_slice())?;
//!         Ok(both)
//!     })
//!     .map(to_host)
//! });
//! assert_eq!(doubled.sync()?, [1, 2, 1, 2]);
//! # Ok::<(), cuda_async::Error>(())
//! ```
//!
//! [`CreditWait`] waits until the stream accepts more work; [`Submit`](crate::op::Submit) has an example.

// Layers, lowest first: `execution_context` holds the contexts and their streams, `fork` makes one context from
// another, and `wait` holds the waits of their steps. The contexts of a run form a tree: the root has the stream that
// the policy chose. It begins inline, and the first clone, fork or sibling promotes it to a shared context. This folder
// uses `wake` and `cuda-core`. Every folder above it names `ExecutionContext`. A typical call goes from
// `ExecutionContext::enqueue` to a stream of `cuda-core`. A wait goes from `poll_submission` in `wait` to a short spin,
// and then to a waiter of the stream.

mod execution_context;
mod fork;
pub(crate) mod wait;

pub use execution_context::{ExecutionContext, MAX_FORK_STREAMS};
pub(crate) use execution_context::{RunInFlight, RunMode};
pub(crate) use fork::{Fork, PollerGuard};
pub use wait::CreditWait;
pub(crate) use wait::{MemoryWait, check_may_park};
