//! `in_order`: runs any number of operations in sequence.

use std::task::{Context, Poll, ready};

use cuda_core::Result;

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Live, Op, Submit},
    ops::iterate::MAX_ITERATIONS_PER_POLL,
};

/// The steps of [`in_order`].
pub struct InOrder<I, S: Submit> {
    rest: Live<I>,
    current: Option<S>,
    outputs: Vec<S::Output>,
}

/// Runs operations in sequence on one stream and gives their outputs in order. Takes the next operation from the
/// iterator when the previous one is submitted. The first error ends the sequence.
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
    Op::new(InOrder { rest: Live::new(ops.into_iter()), current: None, outputs: Vec::new() })
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
        if let Some(steps) = &mut self.current {
            let output = ready!(steps.poll_submit(task, cx));
            self.current = None;
            self.keep(output)?;
        }
        loop {
            // Taken out while it runs: an iterator that panics is not asked again.
            let mut rest = self.rest.take()?;
            let Some(op) = rest.next() else {
                return Poll::Ready(Ok(std::mem::take(&mut self.outputs)));
            };
            let submitted = op.into_op().into_steps().submit_now(task, cx);
            self.rest.set(rest);
            match submitted {
                Ok(output) => self.keep(output)?,
                Err(pending) => {
                    self.current = Some(pending);
                    return Poll::Pending;
                }
            }
            if self.outputs.len().is_multiple_of(MAX_ITERATIONS_PER_POLL) && cx.yield_now(task) {
                return Poll::Pending;
            }
        }
    }
}

impl<I, S: Submit> InOrder<I, S> {
    /// Keeps an output. An error ends the sequence.
    fn keep(&mut self, output: Result<S::Output>) -> Result<()> {
        match output {
            Ok(output) => self.outputs.push(output),
            Err(error) => {
                self.rest.end();
                return Err(error);
            }
        }
        Ok(())
    }
}
