//! `Submit`: the steps of an operation.

use std::task::{Context, Poll};

use cuda_core::{Error, Result};

use crate::context::ExecutionContext;

/// The steps of an operation: a state machine that submits its work. Combinators and custom operations implement this
/// trait.
///
/// [`submit`](Submit::submit) takes the steps by value, enqueues the work that can be enqueued now, and returns
/// - [`Submitted::Ready`] when all of it is *submitted*. The device may still be running it. The output may hold a
///   handle to device memory that the device still writes, because a handle can only enqueue more work behind that.
///   *Host* data in the output is complete.
/// - [`Submitted::Pending`], with the steps that are left, when they wait for the device or for another thread. They
///   will wake `task`, and the run then submits them again, with the context of the same run.
/// - an error, which ends the operation.
///
/// Steps that have ended no longer exist, so no run submits them again. Steps never block.
///
/// ```
/// use std::task::Context;
/// use cuda_async::{Error, ExecutionContext, context::CreditWait, op::{Submit, Submitted}, prelude::*};
///
/// /// Runs other steps, and copies the buffer that they give.
/// enum Duplicate<S> {
///     Running(S),
///     /// The other steps have ended, and this waits for credit.
///     Copying(DeviceBuffer<u32>, CreditWait),
/// }
///
/// impl<S: Submit<Output = DeviceBuffer<u32>>> Submit for Duplicate<S> {
///     type Output = (DeviceBuffer<u32>, DeviceBuffer<u32>);
///
///     fn submit(
///         self,
///         task: &mut Context<'_>,
///         cx: &ExecutionContext,
///     ) -> Result<Submitted<Self>, Error> {
///         let (buffer, mut credit) = match self {
///             Self::Running(steps) => match steps.submit(task, cx)? {
///                 Submitted::Ready(buffer) => (buffer, CreditWait::new()),
///                 Submitted::Pending(steps) => return Ok(Submitted::Pending(Self::Running(steps))),
///             },
///             Self::Copying(buffer, credit) => (buffer, credit),
///         };
///         // The stream may have too much in flight. Then this is pending, and wakes the task when some of it is complete.
///         if cx.poll_credit(&mut credit, task)?.is_pending() {
///             return Ok(Submitted::Pending(Self::Copying(buffer, credit)));
///         }
///         let copy = cx.enqueue(|stream| {
///             let mut copy = DeviceBuffer::uninitialized(stream, buffer.len())?;
///             copy.copy_from(stream, buffer.as_slice())?;
///             Ok(copy)
///         })?;
///         Ok(Submitted::Ready((buffer, copy)))
///     }
/// }
///
/// fn duplicated(
///     op: impl DeviceOp<Output = DeviceBuffer<u32>>,
/// ) -> impl DeviceOp<Output = (DeviceBuffer<u32>, DeviceBuffer<u32>)> {
///     Op::new(Duplicate::Running(op.into_steps()))
/// }
///
/// # fn main() -> Result<(), Error> {
/// let (x, copy) = duplicated(h2d(vec![1u32, 2, 3])).sync()?;
/// assert_eq!((to_host(x).sync()?, to_host(copy).sync()?), (vec![1, 2, 3], vec![1, 2, 3]));
/// # Ok(())
/// # }
/// ```
pub trait Submit: Send + Sized {
    /// The output of the operation.
    type Output: Send;

    /// Enqueues the work that can be enqueued now.
    ///
    /// # Errors
    /// The error of a step. It ends the operation.
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>>;
}

/// The result of [`Submit::submit`]: the output, or the steps that wait.
#[derive(Debug)]
pub enum Submitted<S: Submit> {
    /// All work is enqueued.
    Ready(S::Output),
    /// These steps wait, and will wake the task.
    Pending(S),
}

impl<S: Submit> Submitted<S> {
    /// Submits steps whose state machine works in place. `poll` returns the same results as the `poll` of a [`Future`].
    ///
    /// # Errors
    /// The error that `poll` returns.
    #[inline]
    pub fn poll(
        mut steps: S,
        poll: impl FnOnce(&mut S) -> Poll<Result<S::Output>>,
    ) -> Result<Self> {
        match poll(&mut steps) {
            Poll::Ready(output) => output.map(Self::Ready),
            Poll::Pending => Ok(Self::Pending(steps)),
        }
    }

    /// Puts pending steps into those that hold them.
    #[inline]
    pub fn map_pending<T>(self, f: impl FnOnce(S) -> T) -> Submitted<T>
    where
        T: Submit<Output = S::Output>,
    {
        match self {
            Self::Ready(output) => Submitted::Ready(output),
            Self::Pending(steps) => Submitted::Pending(f(steps)),
        }
    }
}

/// Submits steps that are stored in `slot`, as a poll. The slot is empty once the steps have ended.
///
/// # Errors
/// The error of the steps; [`Error::AlreadyEnded`] if the slot is empty.
#[inline]
pub fn poll_stored<S: Submit>(
    slot: &mut Option<S>,
    task: &mut Context<'_>,
    cx: &ExecutionContext,
) -> Poll<Result<S::Output>> {
    let steps = slot.take().ok_or(Error::AlreadyEnded)?;
    match steps.submit(task, cx)? {
        Submitted::Ready(output) => Poll::Ready(Ok(output)),
        Submitted::Pending(steps) => {
            *slot = Some(steps);
            Poll::Pending
        }
    }
}
