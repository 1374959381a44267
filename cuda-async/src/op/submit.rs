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
///
/// ```
/// use std::task::{Context, Poll, ready};
/// use cuda_async::{Error, ExecutionContext, context::Credit, op::Submit, prelude::*};
///
/// /// Runs other steps, and copies the buffer that they give.
/// struct Duplicate<S> {
///     steps: S,
///     /// The output of `steps`, while this waits for credit.
///     buffer: Option<DeviceBuffer<u32>>,
///     credit: Credit,
/// }
///
/// impl<S: Submit<Output = DeviceBuffer<u32>>> Submit for Duplicate<S> {
///     type Output = (DeviceBuffer<u32>, DeviceBuffer<u32>);
///
///     fn poll_submit(
///         &mut self,
///         task: &mut Context<'_>,
///         cx: &ExecutionContext,
///     ) -> Poll<Result<Self::Output, Error>> {
///         if self.buffer.is_none() {
///             // Steps that have ended return `Error::AlreadyEnded`, and so does this.
///             self.buffer = Some(ready!(self.steps.poll_submit(task, cx))?);
///         }
///         // The stream may have too much in flight. Then this is pending, and wakes the task when some of it is complete.
///         ready!(cx.poll_credit(&mut self.credit, task))?;
///         let buffer = self.buffer.take().ok_or(Error::AlreadyEnded)?;
///         let copy = cx.enqueue(|stream| {
///             let mut copy = DeviceBuffer::uninitialized(stream, buffer.len())?;
///             copy.copy_from(stream, buffer.as_slice())?;
///             Ok(copy)
///         })?;
///         Poll::Ready(Ok((buffer, copy)))
///     }
///
///     fn nested_boxes(&self) -> usize {
///         self.steps.nested_boxes()
///     }
/// }
///
/// fn duplicated(
///     op: impl DeviceOp<Output = DeviceBuffer<u32>>,
/// ) -> impl DeviceOp<Output = (DeviceBuffer<u32>, DeviceBuffer<u32>)> {
///     Op::new(Duplicate { steps: op.into_steps(), buffer: None, credit: Credit::new() })
/// }
///
/// # fn main() -> Result<(), Error> {
/// let (x, copy) = duplicated(h2d(vec![1u32, 2, 3])).sync()?;
/// assert_eq!((to_host(x).sync()?, to_host(copy).sync()?), (vec![1, 2, 3], vec![1, 2, 3]));
/// # Ok(())
/// # }
/// ```
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
