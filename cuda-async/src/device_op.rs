//! The trait that users see: combinators, and the ways to run.

use std::future::IntoFuture;

use cuda_core::{Result, Stream};

use crate::{
    DeviceFuture, ExecutionContext, IntoDeviceOp, Op, SchedulingPolicy, Submit, blocking,
    ops::{BoxedOp, Chain, Inspect, Map, Plain, Shared, WithContext},
};

/// A lazy device operation. Building or composing one touches no device and allocates nothing.
///
/// Run it with `.await` in any executor, with [`sync`](DeviceOp::sync) where there is none, or on a stream
/// of your choice with [`sync_on`](DeviceOp::sync_on).
///
/// It is no `Future` but becomes one: `.await`, `join!`, `select!` and `timeout` take it as it is,
/// `tokio::spawn` wants `op.into_future()`.
///
/// ```
/// use cuda_async::prelude::*;
///
/// fn doubled_twice(values: Vec<f32>) -> impl DeviceOp<Output = Vec<f32>> {
///     h2d(values).then(to_host).map(|host| host.iter().map(|x| 4.0 * x).collect())
/// }
/// assert_eq!(doubled_twice(vec![1.0, 2.0]).sync()?, [4.0, 8.0]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a device operation",
    note = "a closure that gives a plain value goes into `.map(..)`; an async block is no operation: compose with `.then(..)`, or await outside"
)]
pub trait DeviceOp:
    Send
    + Sized
    + IntoFuture<
        Output = Result<<Self as DeviceOp>::Output>,
        IntoFuture = DeviceFuture<<Self as DeviceOp>::Steps>,
    >
{
    /// What it gives.
    type Output: Send;
    /// What it does.
    type Steps: Submit<Output = <Self as DeviceOp>::Output>;

    /// Its steps, for combinators.
    fn into_steps(self) -> <Self as DeviceOp>::Steps;

    /// Runs the operation that `f` makes of this one's output, on the same stream, behind it.
    ///
    /// The closure runs as soon as this operation is submitted: device buffers may still be written, host
    /// data is real.
    fn then<F, O>(self, f: F) -> Op<Chain<<Self as DeviceOp>::Steps, Plain<F>>>
    where
        F: FnOnce(<Self as DeviceOp>::Output) -> O + Send,
        O: IntoDeviceOp,
    {
        Op::new(Chain::new(self.into_steps(), Plain(f)))
    }

    /// Another name for [`then`](DeviceOp::then).
    fn and_then<F, O>(self, f: F) -> Op<Chain<<Self as DeviceOp>::Steps, Plain<F>>>
    where
        F: FnOnce(<Self as DeviceOp>::Output) -> O + Send,
        O: IntoDeviceOp,
    {
        self.then(f)
    }

    /// Like [`then`](DeviceOp::then), for closures that want to know the device and the stream.
    fn then_with_context<F, O>(self, f: F) -> Op<Chain<<Self as DeviceOp>::Steps, WithContext<F>>>
    where
        F: FnOnce(ExecutionContext, <Self as DeviceOp>::Output) -> O + Send,
        O: IntoDeviceOp,
    {
        Op::new(Chain::new(self.into_steps(), WithContext(f)))
    }

    /// Changes the output on the host, when it is submitted.
    fn map<F, U>(self, f: F) -> Op<Map<<Self as DeviceOp>::Steps, F>>
    where
        F: FnOnce(<Self as DeviceOp>::Output) -> U + Send,
        U: Send,
    {
        Op::new(Map::new(self.into_steps(), f))
    }

    /// Looks at the output when it is submitted.
    fn inspect<F>(self, f: F) -> Op<Inspect<<Self as DeviceOp>::Steps, F>>
    where
        F: FnOnce(&<Self as DeviceOp>::Output) + Send,
    {
        Op::new(Inspect::new(self.into_steps(), f))
    }

    /// Runs once, whoever comes first; every clone gets the same `Arc`, or the same error.
    fn shared(self) -> Op<Shared<<Self as DeviceOp>::Steps>>
    where
        <Self as DeviceOp>::Output: Sync,
    {
        Op::new(Shared::new(self.into_steps()))
    }

    /// Hides the type behind one allocation, so that operations of different make fit in one `Vec` or in
    /// the arms of an `if`.
    fn boxed<'a>(self) -> BoxedOp<'a, <Self as DeviceOp>::Output>
    where
        Self: 'a,
        <Self as DeviceOp>::Steps: 'a,
    {
        Op::new(Box::new(self.into_steps()))
    }

    /// Runs on the default policy and blocks the calling thread until the device is done. Needs no runtime.
    ///
    /// # Errors
    /// What any step met, or what the device met while it ran them.
    fn sync(self) -> Result<<Self as DeviceOp>::Output> {
        blocking::sync(self.into_steps())
    }

    /// Runs on `stream` and blocks the calling thread until the device is done.
    ///
    /// # Errors
    /// As [`sync`](DeviceOp::sync).
    fn sync_on(self, stream: &Stream) -> Result<<Self as DeviceOp>::Output> {
        blocking::sync_on(self.into_steps(), stream)
    }

    /// Starts at once on a stream of `policy`; the future waits for the end.
    ///
    /// What goes wrong at the start is told by the future. Steps that wait for host data go on when the
    /// future is polled.
    fn schedule<P>(self, policy: &P) -> DeviceFuture<<Self as DeviceOp>::Steps>
    where
        P: SchedulingPolicy + ?Sized,
    {
        DeviceFuture::scheduled(self.into_steps(), policy)
    }

    /// Submits to `stream` and returns, without waiting for the device.
    ///
    /// # Errors
    /// [`Error::NeedsHostData`](crate::Error::NeedsHostData) if a step has to wait; what it had submitted
    /// until then runs. Else what any step met while it was submitted.
    ///
    /// # Safety
    /// Nobody is told of errors that the device meets later. Handles in the output are safe to use in
    /// further operations; whoever hands them to foreign code orders that behind `stream`.
    unsafe fn async_on(self, stream: &Stream) -> Result<<Self as DeviceOp>::Output> {
        blocking::submit_only(self.into_steps(), stream)
    }
}
