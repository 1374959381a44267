//! `LazyArg`: a buffer, or an operation that yields one.

use std::task::Context;

use cuda_core::Result;

use crate::{
    context::ExecutionContext,
    op::{
        operation::Op,
        submit::{Submit, Submitted},
    },
};

/// A buffer argument of a launcher that [`kernels!`](crate::kernels) generates: a buffer in any form, or an operation
/// that yields one.
///
/// Every [`DeviceOp`](crate::DeviceOp) implements it, so an `impl DeviceOp<Output = ..>` that a function returns is an
/// argument too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a device buffer nor an operation that yields one",
    label = "not a buffer",
    note = "a `Vec` or slice goes to the device first, with `h2d(..)`; `zeros(n)` yields a new buffer"
)]
pub trait LazyArg: Send + Sized {
    /// The buffer: this value itself, or the output of the operation.
    type Ready: Send;
    /// The steps that yield the buffer.
    type Steps: Submit<Output = Self::Ready>;

    /// Converts the value into steps that yield the buffer.
    fn into_arg_steps(self) -> Self::Steps;
}

impl<S: Submit> LazyArg for Op<S> {
    type Ready = S::Output;
    type Steps = S;

    #[inline]
    fn into_arg_steps(self) -> S {
        self.into_steps()
    }
}

/// The steps of a buffer that exists already. They submit nothing.
#[derive(Clone)]
pub struct Ready<B>(B);

impl<B> Ready<B> {
    /// Creates the steps of a buffer.
    #[inline]
    pub const fn new(buffer: B) -> Self {
        Self(buffer)
    }
}

impl<B: Send> Submit for Ready<B> {
    type Output = B;

    #[inline(always)] // so the buffer is never moved into steps
    fn submit(self, _: &mut Context<'_>, _: &ExecutionContext) -> Result<Submitted<Self>> {
        Ok(Submitted::Ready(self.0))
    }
}
