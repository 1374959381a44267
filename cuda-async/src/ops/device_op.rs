//! The trait that users see: combinators, and the ways to run.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use cuda_core::{Device, Error, Result, Stream};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit},
    ops::{
        boxed::{BoxedOp, boxed},
        chain::{Chain, Plain, WithContext},
        inspect::Inspect,
        map::Map,
        map_err::MapErr,
        on::On,
        or_else::OrElse,
        settled::Settled,
        shared::Shared,
        timeout::Timeout,
        unwrap_arc::UnwrapArc,
        wait_for_memory::WaitForMemory,
    },
    policy::SchedulingPolicy,
    run::{DeviceFuture, blocking},
};

/// A lazy device operation. Building or composing one touches no device; only
/// [`boxed`](DeviceOp::boxed), [`shared`](DeviceOp::shared), [`unzip!`](crate::unzip),
/// [`join_all`](crate::join_all), [`race`](crate::race()), [`race!`](crate::race!) and
/// [`to_device`](crate::to_device) allocate then.
///
/// Run it with `.await` in any executor, with [`sync`](DeviceOp::sync) where there is none, or on a stream
/// of your choice with [`sync_on`](DeviceOp::sync_on).
///
/// It is no `Future` but becomes one: `.await`, `join!` and `select!` take it as it is,
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
    note = "a plain value goes into `.map(..)` or `value(..)`; an async closure into `script(async move |cx| ..)`; an op as kernel argument runs first: `zip!(..).then(..)`"
)]
pub trait DeviceOp:
    Send
    + Sized
    + IntoDeviceOp<Output = <Self as DeviceOp>::Output, Steps = <Self as DeviceOp>::Steps>
    + IntoFuture<
        Output = Result<<Self as DeviceOp>::Output>,
        IntoFuture = DeviceFuture<<Self as DeviceOp>::Steps>,
    >
{
    /// The output of the operation.
    type Output: Send;
    /// The steps of the operation.
    type Steps: Submit<Output = <Self as DeviceOp>::Output>;

    /// Takes the steps out, for combinators.
    fn into_steps(self) -> <Self as DeviceOp>::Steps;

    /// Runs the operation that `f` makes of this one's output, on the same stream, behind it.
    ///
    /// The closure runs as soon as this operation is submitted: device buffers may still be written, host
    /// data is real.
    #[inline]
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
    #[inline]
    fn then_with_context<F, O>(self, f: F) -> Op<Chain<<Self as DeviceOp>::Steps, WithContext<F>>>
    where
        F: FnOnce(ExecutionContext, <Self as DeviceOp>::Output) -> O + Send,
        O: IntoDeviceOp,
    {
        Op::new(Chain::new(self.into_steps(), WithContext(f)))
    }

    /// Changes the output on the host, when it is submitted.
    #[inline]
    fn map<F, U>(self, f: F) -> Op<Map<<Self as DeviceOp>::Steps, F>>
    where
        F: FnOnce(<Self as DeviceOp>::Output) -> U + Send,
        U: Send,
    {
        Op::new(Map::new(self.into_steps(), f))
    }

    /// Looks at the output when it is submitted.
    #[inline]
    fn inspect<F>(self, f: F) -> Op<Inspect<<Self as DeviceOp>::Steps, F>>
    where
        F: FnOnce(&<Self as DeviceOp>::Output) + Send,
    {
        Op::new(Inspect::new(self.into_steps(), f))
    }

    /// Changes the error on the host, when a step fails.
    ///
    /// An error that the device meets later comes past it: `op.settled().map_err(f)` sees that too.
    #[inline]
    fn map_err<F>(self, f: F) -> Op<MapErr<<Self as DeviceOp>::Steps, F>>
    where
        F: FnOnce(Error) -> Error + Send,
    {
        Op::new(MapErr::new(self.into_steps(), f))
    }

    /// Runs the operation that `f` makes of the error where this one fails, also if it is the device that fails
    /// while it runs it: this operation is [`settled`](DeviceOp::settled) first.
    ///
    /// ```
    /// use cuda_async::{Error, prelude::*, uninitialised};
    /// let op = uninitialised::<u8>(1 << 60).or_else(|error| {
    ///     assert!(matches!(error, Error::OutOfMemory { .. }));
    ///     zeros(16)
    /// });
    /// assert_eq!(op.sync()?.len(), 16);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn or_else<F, O>(self, f: F) -> Op<OrElse<<Self as DeviceOp>::Steps, F, O::Steps>>
    where
        F: FnOnce(Error) -> O + Send,
        O: IntoDeviceOp<Output = <Self as DeviceOp>::Output>,
    {
        Op::new(OrElse::new(self.into_steps(), f))
    }

    /// Is done only when the device has run what this operation submitted and was asked how that went. So what
    /// is behind it sees errors that the device meets, as [`Error`] values. One that fails half way waits for
    /// what it had submitted.
    ///
    /// # Errors
    /// What any step met, else what the device met. [`Error::NeedsHostData`] in
    /// [`async_on`](DeviceOp::async_on), where nothing may wait.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let op = h2d(vec![1u8; 100]).settled().map(|buffer| buffer.len()); // the copy has landed
    /// assert_eq!(op.sync()?, 100);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn settled(self) -> Op<Settled<<Self as DeviceOp>::Steps>> {
        Op::new(Settled::new(self.into_steps()))
    }

    /// Ends the wait after `duration`, measured from when this operation begins: until then it has to be
    /// [`settled`](DeviceOp::settled). Also ends [`sync`](DeviceOp::sync).
    ///
    /// What is submitted by then runs on, since a device cannot be stopped, and its memory lives until that
    /// is done. What is behind this operation on the same stream, also in an `or_else`, runs behind it.
    ///
    /// # Errors
    /// [`Error::TimedOut`], else as [`settled`](DeviceOp::settled).
    ///
    /// ```
    /// use std::time::Duration;
    /// use cuda_async::prelude::*;
    /// let op = h2d(vec![1u8; 100]).then(to_host).timeout(Duration::from_secs(10));
    /// assert_eq!(op.sync()?.len(), 100);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn timeout(self, duration: Duration) -> Op<Timeout<<Self as DeviceOp>::Steps>> {
        Op::new(Timeout::new(self.into_steps(), duration))
    }

    /// Runs this operation on `device`, on a stream of that device's own policy (see
    /// [`set_device_policy`](crate::runtime::set_device_policy)).
    ///
    /// Where the rest runs on that device anyway, it simply goes on there. Else it is
    /// [`settled`](DeviceOp::settled) before what is behind it begins, since an order between devices is kept by the
    /// host; it begins at once, and sees of what is before it only the values. Buffers that it gives live on `device`.
    ///
    /// ```
    /// use cuda_async::{cuda_cpu::CpuProvider, prelude::*};
    /// let other = Device::open(&CpuProvider::default(), 0)?; // a device of its own, whatever the default is
    /// // On the default device, and then on the other.
    /// let op = h2d([1u8, 2]).then(to_host).then(|v| h2d(v).then(to_host).on(&other));
    /// assert_eq!(op.sync()?, [1, 2]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// What any step or `device` says; [`Error::NeedsHostData`] in [`async_on`](DeviceOp::async_on) of another device.
    fn on(self, device: &Device) -> Op<On<<Self as DeviceOp>::Steps>> {
        Op::new(On::new(self.into_steps(), device.clone()))
    }

    /// In this operation [`h2d`](crate::h2d), [`zeros`](crate::zeros) and
    /// [`uninitialised`](crate::uninitialised) wait for memory where the device has not enough: each is tried again
    /// when something is freed or some work ends, and at the latest after `max`. No thread is held.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cuda_async::prelude::*;
    /// let op = h2d(vec![1u8; 100]).then(to_host).wait_for_memory(Duration::from_secs(1));
    /// assert_eq!(op.sync()?.len(), 100);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] after `max`: operations that hold memory and wait for each other's end with that. At
    /// once if it is more than the device has, and in [`async_on`](DeviceOp::async_on).
    fn wait_for_memory(self, max: Duration) -> Op<WaitForMemory<<Self as DeviceOp>::Steps>> {
        Op::new(WaitForMemory::new(self.into_steps(), max))
    }

    /// Takes the value out of the `Arc` that this operation gives, which has to be its last owner.
    ///
    /// # Errors
    /// [`Error::StillShared`] if it is not.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let table = h2d([1u32, 4, 9]).shared();
    /// let first = table.clone().then(to_host).map(|v| v[0]).sync()?;
    /// let buffer: DeviceBuffer<u32> = table.unwrap_arc().sync()?;
    /// assert_eq!((first, buffer.len()), (1, 3));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn unwrap_arc<T>(self) -> Op<UnwrapArc<<Self as DeviceOp>::Steps>>
    where
        <Self as DeviceOp>::Steps: Submit<Output = Arc<T>>,
        T: Send,
    {
        Op::new(UnwrapArc::new(self.into_steps()))
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
        boxed(self.into_steps())
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
    #[inline]
    fn sync_on(self, stream: &Stream) -> Result<<Self as DeviceOp>::Output> {
        blocking::sync_on(self.into_steps(), stream.clone())
    }

    /// Starts at once on a stream of `policy`; the future waits for the end.
    ///
    /// What goes wrong at the start is told by the future. Steps that wait for host data go on when the
    /// future is polled.
    #[inline]
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
        blocking::submit_only(self.into_steps(), stream.clone())
    }
}

impl<S: Submit> DeviceOp for Op<S> {
    type Output = S::Output;
    type Steps = S;

    #[inline]
    fn into_steps(self) -> S {
        Op::into_steps(self)
    }
}
