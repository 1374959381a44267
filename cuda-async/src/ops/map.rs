//! `map`: changes the output on the host.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{context::ExecutionContext, op::Submit};

/// Steps of [`DeviceOp::map`](crate::DeviceOp::map).
#[derive(Clone)]
pub struct Map<S, F>(Option<(S, F)>);

impl<S, F> Map<S, F> {
    pub(crate) const fn new(steps: S, f: F) -> Self {
        Self(Some((steps, f)))
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
        let Some((steps, _)) = &mut self.0 else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let output = ready!(steps.poll_submit(task, cx));
        let Some((steps, f)) = self.0.take() else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        drop(steps);
        Poll::Ready(output.map(f))
    }
}
