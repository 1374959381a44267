//! `then`, `then_with_context`: runs an operation, passes its output to a closure, and runs the operation it returns.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Submit, Submitted},
};

/// Makes the second operation of a chain from the output of the first.
pub trait Next<T>: Send {
    /// The steps of the second operation.
    type Steps: Submit;

    /// Returns the steps of the second operation.
    fn next(self, cx: &ExecutionContext, output: T) -> Self::Steps;
}

/// A closure that takes the output of the first operation.
#[derive(Clone)]
pub struct Plain<F>(pub(crate) F);

/// A closure that takes the context and the output of the first operation.
#[derive(Clone)]
pub struct WithContext<F>(pub(crate) F);

impl<T, F, O> Next<T> for Plain<F>
where
    F: FnOnce(T) -> O + Send,
    O: IntoDeviceOp,
{
    type Steps = O::Steps;

    #[inline]
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

    #[inline]
    fn next(self, cx: &ExecutionContext, output: T) -> O::Steps {
        (self.0)(cx.clone(), output).into_op().into_steps()
    }
}

/// The steps of [`DeviceOp::then`](crate::ops::DeviceOp::then) and
/// [`DeviceOp::then_with_context`](crate::ops::DeviceOp::then_with_context).
#[derive(Clone)]
pub struct Chain<A: Submit, N: Next<A::Output>>(State<A, N, N::Steps>);

// Not `Live<State>`: every type between two operations shortens the longest chain that the compiler's limit of recursion
// permits.
#[derive(Clone)]
enum State<A, N, B> {
    First(A, N),
    Second(B),
    Ended,
}

impl<A, N, B> State<A, N, B> {
    /// Takes the state and leaves the steps ended.
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Ended)
    }
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
        let output = match &mut self.0 {
            State::First(first, _) => ready!(first.poll_submit(task, cx)),
            State::Second(second) => {
                let output = ready!(second.poll_submit(task, cx));
                self.0 = State::Ended;
                return Poll::Ready(output);
            }
            State::Ended => return Poll::Ready(Err(Error::AlreadyEnded)),
        };
        // If the closure panics, the steps stay ended.
        let State::First(first, next) = self.0.take() else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        drop(first);
        match next.next(cx, output?).submit_now(task, cx) {
            Ok(output) => Poll::Ready(output),
            Err(second) => {
                self.0 = State::Second(second);
                Poll::Pending
            }
        }
    }

    #[inline]
    fn submit_now(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Submitted<Self> {
        let second = match self.0 {
            State::First(first, next) => match first.submit_now(task, cx) {
                Ok(Ok(output)) => next.next(cx, output),
                Ok(Err(error)) => return Ok(Err(error)),
                Err(first) => return Err(Self::new(first, next)),
            },
            State::Second(second) => second,
            State::Ended => return Ok(Err(Error::AlreadyEnded)),
        };
        second.submit_now(task, cx).map_err(|second| Self(State::Second(second)))
    }

    fn nested_boxes(&self) -> usize {
        match &self.0 {
            State::First(first, _) => first.nested_boxes(),
            State::Second(second) => second.nested_boxes(),
            State::Ended => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, prelude::*};

    #[test]
    fn then_passes_the_output() -> crate::Result<()> {
        assert_eq!(value(20).then(|x| value(x + 1)).and_then(|x| value(x * 2)).sync()?, 42);
        Ok(())
    }

    #[test]
    fn then_stops_at_an_error() {
        let failed = value(1).then(|_| Err::<Op<crate::ops::Value<i32>>, _>(Error::OutsideScript));
        assert_eq!(
            failed.then(|_| -> Op<crate::ops::Value<i32>> { unreachable!() }).sync(),
            Err(Error::OutsideScript)
        );
    }

    #[test]
    fn then_with_context_passes_the_device() -> crate::Result<()> {
        let device = crate::open_blocking("cpu")?;
        let op = value(7).then_with_context(|cx, x| value((cx.device().info().address.clone(), x)));
        assert_eq!(op.sync_on(&device.new_stream()?)?, ("cpu".to_owned(), 7));
        Ok(())
    }
}
