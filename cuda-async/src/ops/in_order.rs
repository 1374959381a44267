//! `in_order`: runs any number of operations in sequence.

use std::task::Context;

use cuda_core::Result;

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit, Submitted},
    ops::iterate::MAX_ITERATIONS_PER_POLL,
};

/// The steps of [`in_order`].
pub struct InOrder<I, S: Submit> {
    rest: I,
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
    Op::new(InOrder { rest: ops.into_iter(), current: None, outputs: Vec::new() })
}

impl<I, S> Submit for InOrder<I, S>
where
    I: Iterator<Item: IntoDeviceOp<Output = S::Output, Steps = S>> + Send,
    S: Submit,
{
    type Output = Vec<S::Output>;

    #[inline]
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self { mut rest, mut current, mut outputs } = self;
        loop {
            let steps = match current.take() {
                Some(steps) => steps,
                None => match rest.next() {
                    Some(op) => op.into_op().into_steps(),
                    None => return Ok(Submitted::Ready(outputs)),
                },
            };
            match steps.submit(task, cx)? {
                Submitted::Ready(output) => outputs.push(output),
                Submitted::Pending(steps) => {
                    let current = Some(steps);
                    return Ok(Submitted::Pending(Self { rest, current, outputs }));
                }
            }
            if outputs.len().is_multiple_of(MAX_ITERATIONS_PER_POLL) && cx.waits().yield_now(task) {
                return Ok(Submitted::Pending(Self { rest, current, outputs }));
            }
        }
    }
}
