//! `Submit`: the steps of an operation.

use std::task::{Context, Poll};

use cuda_core::Result;

use crate::context::ExecutionContext;

/// The result of [`Submit::submit_now`]: the output, or the steps if they are pending.
pub type Submitted<S> = Result<Result<<S as Submit>::Output>, S>;

/// The steps of an operation: a state machine that submits its work. Combinators and custom operations implement this
/// trait.
///
/// `poll_submit` enqueues work and returns when all of it is *submitted*. The device may still be running it.
/// - Ready: everything is enqueued. The output may hold a handle to device memory that the device still
///   writes, because a handle can only enqueue more work behind that. *Host* data in the output is complete.
/// - Pending: the steps wait for the device or for another thread, and will wake `task`. They are polled again
///   with the context of the same run.
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

    /// Does the same as [`poll_submit`](Submit::poll_submit), by value. A run calls this before `poll_submit`, and so
    /// do combinators for the steps inside them. Steps that need not wait are then never stored.
    ///
    /// The default implementation polls. Override it where polling would move a large state.
    ///
    /// # Errors
    /// The outer error holds the steps: they are pending, will wake `task`, and go on with `poll_submit`.
    #[inline]
    fn submit_now(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Submitted<Self>
    where
        Self: Sized,
    {
        poll_once(self, task, cx)
    }

    /// Returns the number of boxes that are nested in these steps. Steps that hold other steps return the largest
    /// number of those. See [`MAX_NESTED_BOXES`](crate::context::MAX_NESTED_BOXES).
    fn nested_boxes(&self) -> usize {
        0
    }
}

/// Polls steps once, by value.
#[inline]
pub(crate) fn poll_once<S: Submit>(
    mut steps: S,
    task: &mut Context<'_>,
    cx: &ExecutionContext,
) -> Submitted<S> {
    match steps.poll_submit(task, cx) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err(steps),
    }
}
