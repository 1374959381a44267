//! `map_err`: changes the error on the host.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{Live, Submit, Submitted},
};

/// The steps of [`DeviceOp::map_err`](crate::ops::DeviceOp::map_err).
#[derive(Clone)]
pub struct MapErr<S, F>(Live<(S, F)>);

impl<S, F> MapErr<S, F> {
    pub(crate) const fn new(steps: S, f: F) -> Self {
        Self(Live::new((steps, f)))
    }
}

impl<S, F> Submit for MapErr<S, F>
where
    S: Submit,
    F: FnOnce(Error) -> Error + Send,
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
        Poll::Ready(output.map_err(f))
    }

    #[inline]
    fn submit_now(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Submitted<Self> {
        let Some((steps, f)) = self.0.into_state() else { return Ok(Err(Error::AlreadyEnded)) };
        match steps.submit_now(task, cx) {
            Ok(output) => Ok(output.map_err(f)),
            Err(steps) => Err(Self::new(steps, f)),
        }
    }

    fn nested_boxes(&self) -> usize {
        self.0.peek().map_or(0, |(steps, _)| steps.nested_boxes())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, prelude::*};

    #[test]
    fn map_err_changes_errors_and_keeps_values() {
        let lost = |_| Error::OutOfHostMemory { requested: 1 };
        assert_eq!(value(1).map_err(lost).sync(), Ok(1));
        let failed = value(1).then(|_| Err::<Op<crate::ops::Value<u8>>, _>(Error::NeedsHostData));
        assert_eq!(failed.map_err(lost).sync(), Err(Error::OutOfHostMemory { requested: 1 }));
    }
}
