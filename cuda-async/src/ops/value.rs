//! `value`, `defer`, `with_context`: operations that start from a host value or from a closure.

use std::task::Context;

use cuda_core::Result;

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit, Submitted},
    ops::{
        chain::{Chain, Next},
        device_op::DeviceOp,
    },
};

/// The steps of [`value`].
#[derive(Clone)]
pub struct Value<T>(T);

/// Creates an operation that gives `x` and submits nothing.
///
/// ```
/// use cuda_async::{prelude::*, value};
/// assert_eq!(value(2).map(|x| x + 1).sync()?, 3);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub const fn value<T: Send>(x: T) -> Op<Value<T>> {
    Op::new(Value(x))
}

impl<T: Send> Submit for Value<T> {
    type Output = T;

    #[inline]
    fn submit(self, _: &mut Context<'_>, _: &ExecutionContext) -> Result<Submitted<Self>> {
        Ok(Submitted::Ready(self.0))
    }
}

/// Calls `f` when this operation is run, and runs the operation that `f` returns. Use it to construct an operation
/// late.
///
/// ```
/// use cuda_async::{defer, prelude::*};
/// let op = defer(|| zeros::<u32>(4).then(to_host));
/// assert_eq!(op.sync()?, [0, 0, 0, 0]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub fn defer<F, O>(f: F) -> impl DeviceOp<Output = O::Output>
where
    F: FnOnce() -> O + Send,
    O: IntoDeviceOp,
{
    Op::new(Chain::new(Value(()), Deferred(f)))
}

/// Does the same as [`defer`], under its name in NVIDIA's `cuda-async`.
pub fn empty<F, O>(f: F) -> impl DeviceOp<Output = O::Output>
where
    F: FnOnce() -> O + Send,
    O: IntoDeviceOp,
{
    defer(f)
}

/// Passes the context to `f` when this operation is run, and runs the operation that `f` returns. Use it to enqueue
/// work by hand.
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
    Op::new(Chain::new(Value(()), DeferredWithContext(f)))
}

/// The closure of [`defer`].
// Not a closure in `defer`: its type would contain the type of `f` twice, as a type parameter and as a capture. The
// types of nested `defer`s would then grow exponentially.
struct Deferred<F>(F);

impl<F, O> Next<()> for Deferred<F>
where
    F: FnOnce() -> O + Send,
    O: IntoDeviceOp,
{
    type Steps = O::Steps;

    #[inline]
    fn next(self, _: &ExecutionContext, (): ()) -> O::Steps {
        (self.0)().into_op().into_steps()
    }
}

/// The closure of [`with_context`].
struct DeferredWithContext<F>(F);

impl<F, O> Next<()> for DeferredWithContext<F>
where
    F: FnOnce(ExecutionContext) -> O + Send,
    O: IntoDeviceOp,
{
    type Steps = O::Steps;

    #[inline]
    fn next(self, cx: &ExecutionContext, (): ()) -> O::Steps {
        (self.0)(cx.clone()).into_op().into_steps()
    }
}
