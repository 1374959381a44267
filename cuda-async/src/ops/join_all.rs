//! `join_all`: runs any number of operations concurrently.

use std::task::Context;

use cuda_core::Result;

use crate::{
    context::{ExecutionContext, Fork},
    op::{IntoDeviceOp, Op, Submit, Submitted},
    ops::branch::{Branch, any_pending},
};

/// The steps of [`join_all`].
pub struct JoinAll<S: Submit> {
    branches: Vec<Branch<S>>,
    fork: Fork,
}

/// Runs all operations concurrently and gives their outputs in order. They use the operation's stream and at most
/// [`MAX_FORK_STREAMS`](crate::context::MAX_FORK_STREAMS) more.
///
/// The first error ends the operation. Work that the other operations have submitted runs to its end, or is skipped if
/// nothing can see its results.
///
/// ```
/// use cuda_async::{join_all, prelude::*};
/// let sums = join_all((1..=3).map(|n| h2d(vec![n; n]).then(to_host).map(|v| v.iter().sum::<usize>())));
/// assert_eq!(sums.sync()?, [1, 4, 9]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub fn join_all<I>(ops: I) -> Op<JoinAll<<I::Item as IntoDeviceOp>::Steps>>
where
    I: IntoIterator<Item: IntoDeviceOp>,
{
    let branches = ops.into_iter().map(|op| Branch::new(op.into_op().into_steps())).collect();
    Op::new(JoinAll { branches, fork: Fork::new() })
}

impl<O: IntoDeviceOp> IntoDeviceOp for Vec<O> {
    type Output = Vec<O::Output>;
    type Steps = JoinAll<O::Steps>;

    fn into_op(self) -> Op<Self::Steps> {
        join_all(self)
    }
}

impl<S: Submit> Submit for JoinAll<S> {
    type Output = Vec<S::Output>;

    fn submit(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let submitted = self.poll_branches(task, cx);
        if submitted == Ok(true) {
            return Ok(Submitted::Pending(self));
        }
        let Self { branches, mut fork } = self;
        fork.end(cx, submitted.map(drop))?;
        let outputs: Result<_> = branches.into_iter().map(|mut branch| branch.take()).collect();
        outputs.map(Submitted::Ready)
    }
}

impl<S: Submit> JoinAll<S> {
    /// Polls the branches and returns whether any is pending.
    fn poll_branches(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<bool> {
        let contexts = self.fork.contexts(cx, self.branches.len());
        let mut pending = 0;
        for (branch, cx) in self.branches.iter_mut().zip(contexts) {
            pending += usize::from(branch.poll(task, cx)?.is_pending());
        }
        any_pending(pending, task, cx)
    }
}
