//! `then`, `then_with_context`: one operation, and behind it another that a closure makes of its output.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Submit},
};

/// What comes next, given the output of what came before.
pub trait Next<T>: Send {
    /// The steps that come next.
    type Steps: Submit;

    /// Makes them.
    fn next(self, cx: &ExecutionContext, output: T) -> Self::Steps;
}

/// A closure that takes the output.
#[derive(Clone)]
pub struct Plain<F>(pub(crate) F);

/// A closure that takes the context and the output.
#[derive(Clone)]
pub struct WithContext<F>(pub(crate) F);

impl<T, F, O> Next<T> for Plain<F>
where
    F: FnOnce(T) -> O + Send,
    O: IntoDeviceOp,
{
    type Steps = O::Steps;

    fn next(self, _cx: &ExecutionContext, output: T) -> O::Steps {
        (self.0)(output).into_op().into_steps()
    }
}

impl<T, F, O> Next<T> for WithContext<F>
where
    F: FnOnce(ExecutionContext, T) -> O + Send,
    O: IntoDeviceOp,
{
    type Steps = O::Steps;

    fn next(self, cx: &ExecutionContext, output: T) -> O::Steps {
        (self.0)(cx.clone(), output).into_op().into_steps()
    }
}

/// Steps of [`DeviceOp::then`](crate::ops::DeviceOp::then) and
/// [`DeviceOp::then_with_context`](crate::ops::DeviceOp::then_with_context).
#[derive(Clone)]
pub struct Chain<A: Submit, N: Next<A::Output>>(State<A, N, N::Steps>);

#[derive(Clone)]
enum State<A, N, B> {
    First(A, N),
    Second(B),
    Ended,
}

impl<A: Submit, N: Next<A::Output>> Chain<A, N> {
    pub(crate) const fn new(first: A, next: N) -> Self {
        Self(State::First(first, next))
    }
}

impl<A: Submit, N: Next<A::Output>> Submit for Chain<A, N> {
    type Output = <N::Steps as Submit>::Output;

    #[inline]
    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        if let State::First(first, _) = &mut self.0 {
            let output = ready!(first.poll_submit(task, cx));
            let State::First(first, next) = std::mem::replace(&mut self.0, State::Ended) else {
                return Poll::Ready(Err(Error::AlreadyEnded));
            };
            drop(first);
            self.0 = State::Second(next.next(cx, output?));
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
    fn hands_the_output_on() -> crate::Result<()> {
        assert_eq!(value(20).then(|x| value(x + 1)).and_then(|x| value(x * 2)).sync()?, 42);
        Ok(())
    }

    #[test]
    fn an_error_ends_the_chain() {
        let failed = value(1).then(|_| Err::<Op<crate::ops::Value<i32>>, _>(Error::NeedsHostData));
        assert_eq!(
            failed.then(|_| -> Op<crate::ops::Value<i32>> { unreachable!() }).sync(),
            Err(Error::NeedsHostData)
        );
    }

    #[test]
    fn the_context_names_the_device() -> crate::Result<()> {
        let device = crate::open("cpu")?;
        let op = value(7).then_with_context(|cx, x| value((cx.device().info().address.clone(), x)));
        assert_eq!(op.sync_on(&device.new_stream()?)?, ("cpu".to_owned(), 7));
        Ok(())
    }
}
