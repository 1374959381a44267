//! `map_err`: changes the error on the host.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{context::ExecutionContext, op::Submit};

/// Steps of [`DeviceOp::map_err`](crate::DeviceOp::map_err).
#[derive(Clone)]
pub struct MapErr<S, F>(Option<(S, F)>);

impl<S, F> MapErr<S, F> {
    pub(crate) const fn new(steps: S, f: F) -> Self {
        Self(Some((steps, f)))
    }
}

impl<S, F> Submit for MapErr<S, F>
where
    S: Submit,
    F: FnOnce(Error) -> Error + Send,
{
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        let Some((steps, _)) = &mut self.0 else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let output = ready!(steps.poll_submit(task, cx));
        let Some((steps, f)) = self.0.take() else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        drop(steps);
        Poll::Ready(output.map_err(f))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, prelude::*};

    #[test]
    fn changes_errors_and_leaves_values() {
        let lost = |_| Error::OutOfHostMemory { requested: 1 };
        assert_eq!(value(1).map_err(lost).sync(), Ok(1));
        let failed = value(1).then(|_| Err::<Op<crate::ops::Value<u8>>, _>(Error::NeedsHostData));
        assert_eq!(failed.map_err(lost).sync(), Err(Error::OutOfHostMemory { requested: 1 }));
    }
}
