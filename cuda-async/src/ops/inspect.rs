//! `inspect`: looks at the output in passing.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{context::ExecutionContext, op::Submit};

/// Steps of [`DeviceOp::inspect`](crate::DeviceOp::inspect).
#[derive(Clone)]
pub struct Inspect<S, F> {
    steps: S,
    f: Option<F>,
}

impl<S, F> Inspect<S, F> {
    pub(crate) const fn new(steps: S, f: F) -> Self {
        Self { steps, f: Some(f) }
    }
}

impl<S, F> Submit for Inspect<S, F>
where
    S: Submit,
    F: FnOnce(&S::Output) + Send,
{
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        let output = ready!(self.steps.poll_submit(task, cx))?;
        let f = self.f.take().ok_or(Error::AlreadyEnded)?;
        f(&output);
        Poll::Ready(Ok(output))
    }
}
