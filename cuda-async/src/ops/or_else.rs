//! `or_else`: another operation where the first fails.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Submit},
    ops::settled::Settled,
};

/// Steps of [`DeviceOp::or_else`](crate::DeviceOp::or_else).
pub struct OrElse<S: Submit, F, B>(State<S, F, B>);

enum State<S: Submit, F, B> {
    First(Settled<S>, F),
    Second(B),
    Ended,
}

impl<S: Submit, F, B> OrElse<S, F, B> {
    pub(crate) const fn new(first: S, f: F) -> Self {
        Self(State::First(Settled::new(first), f))
    }
}

impl<S, F, O, B> Submit for OrElse<S, F, B>
where
    S: Submit,
    F: FnOnce(Error) -> O + Send,
    O: IntoDeviceOp<Output = S::Output, Steps = B>,
    B: Submit<Output = S::Output>,
{
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        if let State::First(first, _) = &mut self.0 {
            if let Err(error) = cx.may_wait() {
                self.0 = State::Ended;
                return Poll::Ready(Err(error));
            }
            let settled = ready!(first.poll_submit(task, cx));
            let State::First(_, f) = std::mem::replace(&mut self.0, State::Ended) else {
                return Poll::Ready(Err(Error::AlreadyEnded));
            };
            match settled {
                Ok(output) => return Poll::Ready(Ok(output)),
                Err(error) => self.0 = State::Second(f(error).into_op().into_steps()),
            }
        }
        let State::Second(second) = &mut self.0 else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let output = ready!(second.poll_submit(task, cx));
        self.0 = State::Ended;
        Poll::Ready(output)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, prelude::*};

    #[test]
    fn the_second_runs_only_where_the_first_fails() {
        let fine = value(1).or_else(|_| -> Op<crate::ops::Value<i32>> { unreachable!() });
        assert_eq!(fine.sync(), Ok(1));
        let failed = value(1).then(|_| Err::<Op<crate::ops::Value<i32>>, _>(Error::NeedsHostData));
        let saved = failed.or_else(|error| {
            assert_eq!(error, Error::NeedsHostData);
            value(2)
        });
        assert_eq!(saved.sync(), Ok(2));
    }
}
