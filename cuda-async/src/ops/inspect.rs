//! `inspect`: borrows the output as it passes.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{Live, Submit, Submitted},
};

/// The steps of [`DeviceOp::inspect`](crate::ops::DeviceOp::inspect).
#[derive(Clone)]
pub struct Inspect<S, F>(Live<(S, F)>);

impl<S, F> Inspect<S, F> {
    pub(crate) const fn new(steps: S, f: F) -> Self {
        Self(Live::new((steps, f)))
    }
}

impl<S, F> Submit for Inspect<S, F>
where
    S: Submit,
    F: FnOnce(&S::Output) + Send,
{
    type Output = S::Output;

    #[inline]
    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        let output = ready!(self.0.get()?.0.poll_submit(task, cx));
        let (steps, f) = self.0.take()?;
        drop(steps);
        Poll::Ready(output.inspect(f))
    }

    #[inline]
    fn submit_now(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Submitted<Self> {
        let Some((steps, f)) = self.0.into_state() else { return Ok(Err(Error::AlreadyEnded)) };
        match steps.submit_now(task, cx) {
            Ok(output) => Ok(output.inspect(f)),
            Err(steps) => Err(Self::new(steps, f)),
        }
    }

    fn nested_boxes(&self) -> usize {
        self.0.peek().map_or(0, |(steps, _)| steps.nested_boxes())
    }
}
