//! One of several operations that run concurrently.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{Submit, poll_stored},
};

/// The steps of one of the operations that [`zip!`](crate::zip) or [`join_all`](crate::join_all) runs. Holds their
/// output until all branches are submitted.
pub struct Branch<S: Submit> {
    /// Until they are submitted.
    steps: Option<S>,
    output: Option<S::Output>,
}

impl<S: Submit> Branch<S> {
    pub(crate) const fn new(steps: S) -> Self {
        Self { steps: Some(steps), output: None }
    }

    /// Ready when the branch is submitted. Later polls are ready too.
    pub(crate) fn poll(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<()>> {
        if self.output.is_none() {
            self.output = Some(ready!(poll_stored(&mut self.steps, task, cx))?);
        }
        Poll::Ready(Ok(()))
    }

    /// Takes the output of a submitted branch.
    ///
    /// # Errors
    /// [`Error::AlreadyEnded`] if there is none.
    pub(crate) fn take(&mut self) -> Result<S::Output> {
        self.output.take().ok_or(Error::AlreadyEnded)
    }
}

/// Returns whether branches are pending, and makes a blocking run wait by wakers if there are several. Its thread would
/// otherwise wait for the stream of one branch to its end before it polls the others.
pub(crate) fn any_pending(
    pending: usize,
    task: &Context<'_>,
    cx: &ExecutionContext,
) -> Result<bool> {
    if pending > 1 && cx.waits().may_wait("zip").is_ok() {
        cx.waits().wait_by_wakers("zip", task)?;
    }
    Ok(pending > 0)
}
