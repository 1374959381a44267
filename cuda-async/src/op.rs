//! What a device operation is.

use std::{
    future::IntoFuture,
    task::{Context, Poll},
};

use cuda_core::{Error, Result};

use crate::{DeviceFuture, DeviceOp, ExecutionContext};

/// The steps of an operation: what combinators and custom operations implement.
///
/// `poll_submit` enqueues work and says when it is *submitted*; that is not when the device has run it.
/// - Ready: everything is enqueued. A handle to device memory may be handed on while the device still
///   writes to it, since a handle only ever enqueues more work behind that. *Host* data is handed on
///   only when it is real.
/// - Pending: it waits for the device or for another thread, and will wake `task`. It is polled again
///   with the same `cx`.
///
/// Steps drop their inputs before they return ready, and answer [`Error::AlreadyEnded`] when polled after
/// that. They never block.
pub trait Submit: Send {
    /// What the operation gives.
    type Output: Send;

    /// Enqueues what can be enqueued now.
    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>>;
}

/// A device operation made of `S`: a value that knows what to do and has not begun.
///
/// The only [`DeviceOp`]; whoever implements [`Submit`] wraps it in this.
#[must_use = "a device operation does nothing until it is awaited or run with `.sync()`"]
#[derive(Clone)]
pub struct Op<S>(S);

impl<S: Submit> Op<S> {
    /// The operation of these steps.
    pub const fn new(steps: S) -> Self {
        Self(steps)
    }
}

impl<S> std::fmt::Debug for Op<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Op({})", std::any::type_name::<S>())
    }
}

impl<S: Submit> IntoFuture for Op<S> {
    type Output = Result<S::Output>;
    type IntoFuture = DeviceFuture<S>;

    /// The future runs on the process's default policy; see [`set_default_policy`](crate::set_default_policy).
    fn into_future(self) -> DeviceFuture<S> {
        DeviceFuture::idle(self.0)
    }
}

impl<S: Submit> DeviceOp for Op<S> {
    type Output = S::Output;
    type Steps = S;

    fn into_steps(self) -> S {
        self.0
    }
}

/// What can be used where an operation is wanted: operations, tuples of them (which run at the same time,
/// like [`zip!`](crate::zip)), and `Result`s of them, so that closures can use `?`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a device operation",
    note = "a plain value goes into `.map(..)` or `value(..)`; an async closure into `script(async move |cx| ..)`; an op as kernel argument runs first: `zip!(..).then(..)`"
)]
pub trait IntoDeviceOp {
    /// What the operation gives.
    type Output: Send;
    /// Its steps.
    type Steps: Submit<Output = Self::Output>;

    /// Makes the operation.
    fn into_op(self) -> Op<Self::Steps>;
}

impl<D: DeviceOp> IntoDeviceOp for D {
    type Output = <D as DeviceOp>::Output;
    type Steps = <D as DeviceOp>::Steps;

    fn into_op(self) -> Op<Self::Steps> {
        Op(self.into_steps())
    }
}

impl<O: IntoDeviceOp> IntoDeviceOp for Result<O> {
    type Output = O::Output;
    type Steps = Fallible<O::Steps>;

    fn into_op(self) -> Op<Self::Steps> {
        Op(Fallible(match self {
            Ok(op) => State::Runs(op.into_op().0),
            Err(error) => State::Failed(error),
        }))
    }
}

/// Steps that may have failed before they began.
pub struct Fallible<S>(State<S>);

enum State<S> {
    Runs(S),
    Failed(Error),
    Ended,
}

impl<S: Submit> Submit for Fallible<S> {
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        if let State::Runs(steps) = &mut self.0 {
            return steps.poll_submit(task, cx);
        }
        Poll::Ready(Err(match std::mem::replace(&mut self.0, State::Ended) {
            State::Failed(error) => error,
            _ => Error::AlreadyEnded,
        }))
    }
}
