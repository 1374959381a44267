//! `Op`: steps as a value, and `IntoDeviceOp`: everything that can be used as an operation.

use std::task::Context;

use cuda_core::Result;

use crate::{
    context::ExecutionContext,
    op::submit::{Submit, Submitted},
};

/// A device operation made of the steps `S`. It is a value that describes work and has not started.
///
/// This is the only type that implements [`DeviceOp`](crate::ops::DeviceOp). To write an operation, implement
/// [`Submit`] and wrap the steps in `Op`.
#[must_use = "a device operation does nothing until it is awaited or run with `.sync()`"]
#[derive(Clone)]
pub struct Op<S>(S);

impl<S: Submit> Op<S> {
    /// Creates an operation from its steps.
    pub const fn new(steps: S) -> Self {
        Self(steps)
    }

    /// Takes the steps out.
    #[inline]
    pub(crate) fn into_steps(self) -> S {
        self.0
    }
}

impl<S> std::fmt::Debug for Op<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Op({})", std::any::type_name::<S>())
    }
}

/// Conversion into an operation. Operations, tuples and vectors of operations (which run at the same time, like
/// [`zip!`](crate::zip)), and `Result`s of operations implement it, so closures can use `?`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a device operation",
    note = "a plain value goes into `.map(..)` or `value(..)`; an async closure into `script(async move |cx| ..)`; an op as argument of `launch` runs first: `zip!(..).then(..)`"
)]
pub trait IntoDeviceOp {
    /// The output of the operation.
    type Output: Send;
    /// The steps of the operation.
    type Steps: Submit<Output = Self::Output>;

    /// Converts the value into an operation.
    fn into_op(self) -> Op<Self::Steps>;
}

impl<S: Submit> IntoDeviceOp for Op<S> {
    type Output = S::Output;
    type Steps = S;

    #[inline]
    fn into_op(self) -> Op<S> {
        self
    }
}

impl<O: IntoDeviceOp> IntoDeviceOp for Result<O> {
    type Output = O::Output;
    type Steps = Fallible<O::Steps>;

    fn into_op(self) -> Op<Self::Steps> {
        Op::new(Fallible(self.map(|op| op.into_op().into_steps())))
    }
}

/// The steps of a `Result` that holds an operation or an error.
pub struct Fallible<S>(Result<S>);

impl<S: Submit> Submit for Fallible<S> {
    type Output = S::Output;

    #[inline(always)] // as for `LaunchOp`: operations are taken apart where they were made
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        Ok(self.0?.submit(task, cx)?.map_pending(|steps| Self(Ok(steps))))
    }
}
