//! `value`, `empty`, `with_context`: where operations begin.

use std::task::{Context, Poll};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit},
    ops::device_op::DeviceOp,
};

/// Steps of [`value`].
#[derive(Clone)]
pub struct Value<T>(Option<T>);

/// The operation that gives `x` and does nothing.
///
/// ```
/// use cuda_async::{prelude::*, value};
/// assert_eq!(value(2).map(|x| x + 1).sync()?, 3);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub const fn value<T: Send>(x: T) -> Op<Value<T>> {
    Op::new(Value(Some(x)))
}

impl<T: Send> Submit for Value<T> {
    type Output = T;

    fn poll_submit(&mut self, _: &mut Context<'_>, _: &ExecutionContext) -> Poll<Result<T>> {
        Poll::Ready(self.0.take().ok_or(Error::AlreadyEnded))
    }
}

/// The operation that `f` makes when it is run: for work that should not even be described before.
///
/// ```
/// use cuda_async::{ops::empty, prelude::*};
/// let op = empty(|| zeros::<u32>(4).then(to_host));
/// assert_eq!(op.sync()?, [0, 0, 0, 0]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub fn empty<F, O>(f: F) -> impl DeviceOp<Output = O::Output>
where
    F: FnOnce() -> O + Send,
    O: IntoDeviceOp,
{
    value(()).then(|()| f())
}

/// The operation that `f` makes when it is run, knowing where: the way to enqueue by hand.
///
/// ```
/// use cuda_async::{DeviceBuffer, prelude::*, value, with_context};
/// let op = with_context(|cx| {
///     cx.enqueue(|stream| DeviceBuffer::<f32>::zeroed(stream, 3)).map(value)
/// });
/// assert_eq!(op.then(to_host).sync()?, [0.0; 3]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub fn with_context<F, O>(f: F) -> impl DeviceOp<Output = O::Output>
where
    F: FnOnce(ExecutionContext) -> O + Send,
    O: IntoDeviceOp,
{
    value(()).then_with_context(|cx, ()| f(cx))
}
