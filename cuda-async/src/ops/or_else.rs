//! `or_else`: runs another operation if the first one fails.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Live, Submit},
    ops::settled::Settled,
};

/// The steps of [`DeviceOp::or_else`](crate::ops::DeviceOp::or_else).
pub struct OrElse<S: Submit, F, B>(Live<State<S, F, B>>);

enum State<S: Submit, F, B> {
    First(Settled<S>, F),
    Second(B),
}

impl<S: Submit, F, B> OrElse<S, F, B> {
    pub(crate) const fn new(first: S, f: F) -> Self {
        Self(Live::new(State::First(Settled::new(first), f)))
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
        if let State::First(first, _) = self.0.get()? {
            if let Err(error) = cx.may_wait("or_else") {
                self.0.end();
                return Poll::Ready(Err(error));
            }
            let settled = ready!(first.poll_submit(task, cx));
            let has_panicked = first.has_panicked();
            let State::First(_, f) = self.0.take()? else {
                return Poll::Ready(Err(Error::AlreadyEnded));
            };
            match settled {
                Ok(output) => return Poll::Ready(Ok(output)),
                Err(error) if has_panicked => return Poll::Ready(Err(error)),
                Err(error) => self.0.set(State::Second(f(error).into_op().into_steps())),
            };
        }
        let State::Second(second) = self.0.get()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let output = ready!(second.poll_submit(task, cx));
        self.0.end();
        Poll::Ready(output)
    }

    fn nested_boxes(&self) -> usize {
        match self.0.peek() {
            Some(State::First(first, _)) => first.nested_boxes(),
            Some(State::Second(second)) => second.nested_boxes(),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, prelude::*};

    #[test]
    fn or_else_runs_the_second_only_after_an_error() {
        let fine = value(1).or_else(|_| -> Op<crate::ops::Value<i32>> { unreachable!() });
        assert_eq!(fine.sync(), Ok(1));
        let failed = value(1).then(|_| Err::<Op<crate::ops::Value<i32>>, _>(Error::OutsideScript));
        let saved = failed.or_else(|error| {
            assert_eq!(error, Error::OutsideScript);
            value(2)
        });
        assert_eq!(saved.sync(), Ok(2));
    }
}
