//! `map`: changes the output on the host.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{Live, Submit, Submitted},
};

/// The steps of [`DeviceOp::map`](crate::ops::DeviceOp::map).
#[derive(Clone)]
pub struct Map<S, F>(Live<(S, F)>);

impl<S, F> Map<S, F> {
    pub(crate) const fn new(steps: S, f: F) -> Self {
        Self(Live::new((steps, f)))
    }
}

impl<S, F, U> Submit for Map<S, F>
where
    S: Submit,
    F: FnOnce(S::Output) -> U + Send,
    U: Send,
{
    type Output = U;

    #[inline]
    fn poll_submit(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<U>> {
        let output = ready!(self.0.get()?.0.poll_submit(task, cx));
        let (steps, f) = self.0.take()?;
        drop(steps);
        Poll::Ready(output.map(f))
    }

    #[inline]
    fn submit_now(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Submitted<Self> {
        let Some((steps, f)) = self.0.into_state() else { return Ok(Err(Error::AlreadyEnded)) };
        match steps.submit_now(task, cx) {
            Ok(output) => Ok(output.map(f)),
            Err(steps) => Err(Self::new(steps, f)),
        }
    }

    fn nested_boxes(&self) -> usize {
        self.0.peek().map_or(0, |(steps, _)| steps.nested_boxes())
    }
}
