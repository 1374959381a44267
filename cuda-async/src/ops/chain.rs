//! `then`, `then_with_context`: runs an operation, passes its output to a closure, and runs the operation it returns.

use std::task::Context;

use cuda_core::Result;

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

// A type of its own, because the fields of a public enum are public.
#[derive(Clone)]
enum State<A, N, B> {
    First(A, N),
    Second(B),
}

impl<A: Submit, N: Next<A::Output>> Chain<A, N> {
    pub(crate) const fn new(first: A, next: N) -> Self {
        Self(State::First(first, next))
    }
}

impl<A: Submit, N: Next<A::Output>> Submit for Chain<A, N> {
    type Output = <N::Steps as Submit>::Output;

    #[inline]
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let second = match self.0 {
            State::First(first, next) => match first.submit(task, cx)? {
                Submitted::Ready(output) => next.next(cx, output),
                Submitted::Pending(first) => return Ok(Submitted::Pending(Self::new(first, next))),
            },
            State::Second(second) => second,
        };
        Ok(second.submit(task, cx)?.map_pending(|second| Self(State::Second(second))))
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
