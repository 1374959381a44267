//! `IntoDeviceOp`: everything that can be used as an operation.

use std::task::Context;

use cuda_core::Result;

use crate::{
    context::ExecutionContext,
    op::{
        operation::Op,
        submit::{Submit, Submitted},
    },
};

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
