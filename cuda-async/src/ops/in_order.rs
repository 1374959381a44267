//! `in_order`: operations one after the other, however many.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit},
    ops::iterate::MAX_TURNS_PER_POLL,
};

/// Steps of [`in_order`].
pub struct InOrder<I, S: Submit> {
    rest: Option<I>,
    current: Option<S>,
    outputs: Vec<S::Output>,
}

/// Runs operations one after the other on one stream; gives their outputs in order. Each is made only when
/// the one before is submitted. The first error ends it.
///
/// ```
/// use cuda_async::{in_order, prelude::*};
/// let op = in_order((0..3).map(|n| h2d(vec![n]).then(to_host)));
/// assert_eq!(op.sync()?, [[0], [1], [2]]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub fn in_order<I>(ops: I) -> Op<InOrder<I::IntoIter, <I::Item as IntoDeviceOp>::Steps>>
where
    I: IntoIterator<Item: IntoDeviceOp, IntoIter: Send>,
{
    Op::new(InOrder { rest: Some(ops.into_iter()), current: None, outputs: Vec::new() })
}

impl<I, S> Submit for InOrder<I, S>
where
    I: Iterator<Item: IntoDeviceOp<Output = S::Output, Steps = S>> + Send,
    S: Submit,
{
    type Output = Vec<S::Output>;

    #[inline]
    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        loop {
            if self.current.is_none() {
                // Taken out: an iterator that panics is not asked again.
                let mut rest = self.rest.take().ok_or(Error::AlreadyEnded)?;
                let Some(op) = rest.next() else {
                    return Poll::Ready(Ok(std::mem::take(&mut self.outputs)));
                };
                self.current = Some(op.into_op().into_steps());
                self.rest = Some(rest);
            }
            let steps = self.current.as_mut().ok_or(Error::AlreadyEnded)?;
            let output = ready!(steps.poll_submit(task, cx));
            self.current = None;
            if output.is_err() {
                self.rest = None;
            }
            self.outputs.push(output?);
            if self.outputs.len().is_multiple_of(MAX_TURNS_PER_POLL) && cx.yield_now(task) {
                return Poll::Pending;
            }
        }
    }
}
