//! `Submit`: the steps of an operation.

use std::task::{Context, Poll};

use cuda_core::Result;

use crate::context::ExecutionContext;

/// The steps of an operation. Combinators and custom operations implement this trait.
///
/// `poll_submit` enqueues work and returns when all of it is *submitted*. The device may still be running it.
/// - Ready: everything is enqueued. The output may hold a handle to device memory that the device still
///   writes, because a handle can only enqueue more work behind that. *Host* data in the output is complete.
/// - Pending: the steps wait for the device or for another thread, and will wake `task`. They are polled again
///   with the same `cx`.
///
/// Steps drop their inputs before they return ready, and return [`Error::AlreadyEnded`](cuda_core::Error) when
/// they are polled after that. They never block.
pub trait Submit: Send {
    /// The output of the operation.
    type Output: Send;

    /// Enqueues the work that can be enqueued now.
    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>>;
}
