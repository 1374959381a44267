//! `DeviceOp`: the combinators as methods, and the ways to run an operation.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use cuda_core::{Device, Error, MemoryPool, Result, Stream};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, LazyArg, Op, Submit},
    ops::{
        allocating::{Allocating, FromPool, Waiting},
        boxed::{Boxed, BoxedOp},
        chain::{Chain, Plain, WithContext},
        mapped::{InspectOutput, MapError, MapOutput, Mapped, TryMapOutput, UnwrapArc},
        named::Named,
        on::On,
        or_else::OrElse,
        settled::Settled,
        shared::Shared,
        timed::Timed,
        timeout::Timeout,
    },
    policy::SchedulingPolicy,
    run::{DeviceFuture, blocking},
};

/// A lazy device operation. Building or composing operations uses no device. Only [`boxed`](DeviceOp::boxed),
/// [`shared`](DeviceOp::shared), [`unzip!`](crate::unzip), [`join_all`](crate::join_all), [`race`](crate::race()),
/// [`race!`](crate::race!), [`to_device`](crate::to_device), [`compile`](crate::kernel::compile()) and the operations
/// of a [`ModuleStore`](crate::kernel::ModuleStore) allocate when they build an operation.
///
/// Run an operation with `.await` in any executor, with [`sync`](DeviceOp::sync) without an executor, or with
/// [`sync_on`](DeviceOp::sync_on) on a given stream.
///
/// An operation is not a `Future`, but it converts into one. `.await`, `join!` and `select!` take the operation itself.
/// `tokio::spawn` takes `op.into_future()`.
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
    note = "a plain value goes into `.map(..)` or `value(..)`; an async closure into `script(async move |cx| ..)`; an op as argument of `launch` runs first: `zip!(..).then(..)`"
)]
#[must_use = "a device operation does nothing until it is awaited or run with `.sync()`"]
pub trait DeviceOp:
    Send
    + Sized
    + IntoDeviceOp<Output = <Self as DeviceOp>::Output, Steps = <Self as DeviceOp>::Steps>
    + LazyArg<Ready = <Self as DeviceOp>::Output, Steps = <Self as DeviceOp>::Steps>
    + IntoFuture<
        Output = Result<<Self as DeviceOp>::Output>,
        IntoFuture = DeviceFuture<<Self as DeviceOp>::Steps>,
    >
{
    /// The output of the operation.
    type Output: Send;
    /// The steps of the operation.
    type Steps: Submit<Output = <Self as DeviceOp>::Output>;

    /// Returns the steps, for combinators.
    ///
    /// ```
    /// use cuda_async::{Op, prelude::*};
    /// let steps = value(7).into_steps();
    /// assert_eq!(Op::new(steps).sync()?, 7);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn into_steps(self) -> <Self as DeviceOp>::Steps;

    /// Passes the output to `f` and runs the operation that `f` returns, on the same stream and after this one.
    ///
    /// The closure runs when this operation is submitted. The device may still be writing buffers in the output, but
    /// host data in the output is complete. A closure that can fail returns a `Result` of an operation; for errors of
    /// your own see [`Error::other`].
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let op = h2d(vec![1u32, 2]).then(|buffer| to_host(buffer)); // or `.then(to_host)`
    /// assert_eq!(op.sync()?, [1, 2]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    #[inline]
    fn then<F, O>(self, f: F) -> Op<Chain<<Self as DeviceOp>::Steps, Plain<F>>>
    where
        F: FnOnce(<Self as DeviceOp>::Output) -> O + Send,
        O: IntoDeviceOp,
    {
        Op::new(Chain::new(self.into_steps(), Plain(f)))
    }

    /// Passes the output to `f` and runs the operation that `f` returns: another name of [`then`](DeviceOp::then).
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// assert_eq!(h2d(vec![1u32, 2]).and_then(to_host).sync()?, [1, 2]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn and_then<F, O>(self, f: F) -> Op<Chain<<Self as DeviceOp>::Steps, Plain<F>>>
    where
        F: FnOnce(<Self as DeviceOp>::Output) -> O + Send,
        O: IntoDeviceOp,
    {
        self.then(f)
    }

    /// Passes the context and the output to `f`, and runs the operation that `f` returns on the same stream. For
    /// closures that use the device or the stream.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let op = h2d(vec![1u32, 2]).then_with_context(|cx, buffer| {
    ///     println!("on {}", cx.device().info().name);
    ///     to_host(buffer)
    /// });
    /// assert_eq!(op.sync()?, [1, 2]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    #[inline]
    fn then_with_context<F, O>(self, f: F) -> Op<Chain<<Self as DeviceOp>::Steps, WithContext<F>>>
    where
        F: FnOnce(ExecutionContext, <Self as DeviceOp>::Output) -> O + Send,
        O: IntoDeviceOp,
    {
        Op::new(Chain::new(self.into_steps(), WithContext(f)))
    }

    /// Applies `f` to the output on the host, when this operation is submitted.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let sum = h2d(vec![1u32, 2]).then(to_host).map(|values| values.iter().sum::<u32>());
    /// assert_eq!(sum.sync()?, 3);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    #[inline]
    fn map<F, U>(self, f: F) -> Op<Mapped<<Self as DeviceOp>::Steps, MapOutput<F>>>
    where
        F: FnOnce(<Self as DeviceOp>::Output) -> U + Send,
        U: Send,
    {
        Op::new(Mapped::new(self.into_steps(), MapOutput(f)))
    }

    /// Applies a fallible `f` to the output on the host, when this operation is submitted. An error of `f` ends the
    /// operation.
    ///
    /// In the closure, `?` converts this library's errors and the common errors of `std`. Convert errors of your own
    /// with [`Error::other`].
    ///
    /// ```
    /// use cuda_async::{Error, prelude::*};
    ///
    /// fn text(bytes: Vec<u8>) -> impl DeviceOp<Output = String> {
    ///     h2d(bytes).then(to_host).try_map(|bytes| Ok(String::from_utf8(bytes)?))
    /// }
    /// assert_eq!(text(b"Rust".to_vec()).sync()?, "Rust");
    /// let error = text(vec![0xff]).sync().unwrap_err();
    /// assert!(error.downcast_ref::<std::string::FromUtf8Error>().is_some());
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    fn try_map<F, U>(self, f: F) -> Op<Mapped<<Self as DeviceOp>::Steps, TryMapOutput<F>>>
    where
        F: FnOnce(<Self as DeviceOp>::Output) -> Result<U> + Send,
        U: Send,
    {
        Op::new(Mapped::new(self.into_steps(), TryMapOutput(f)))
    }

    /// Calls `f` with a reference to the output, when this operation is submitted.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let op = h2d(vec![1u32, 2]).inspect(|buffer| println!("{} elements", buffer.len())).then(to_host);
    /// assert_eq!(op.sync()?, [1, 2]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    #[inline]
    fn inspect<F>(self, f: F) -> Op<Mapped<<Self as DeviceOp>::Steps, InspectOutput<F>>>
    where
        F: FnOnce(&<Self as DeviceOp>::Output) + Send,
    {
        Op::new(Mapped::new(self.into_steps(), InspectOutput(f)))
    }

    /// Applies `f` to the error, if a step of this operation fails.
    ///
    /// An error of the device after the submission does not pass through `f`. To include such errors, use
    /// `op.settled().map_err(f)`.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_async::Error;
    /// let op = value(1).try_map(|n| u32::try_from(-n).map_err(Error::other)).map_err(|_| Error::other("no such row"));
    /// assert_eq!(op.sync().unwrap_err().to_string(), "no such row");
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    #[inline]
    fn map_err<F>(self, f: F) -> Op<Mapped<<Self as DeviceOp>::Steps, MapError<F>>>
    where
        F: FnOnce(Error) -> Error + Send,
    {
        Op::new(Mapped::new(self.into_steps(), MapError(f)))
    }

    /// Runs the operation that `f` makes from the error, if this operation fails on the host or on the device. Waits
    /// until this operation is [`settled`](DeviceOp::settled). If a step panics, `f` is not called: the panic goes to
    /// the caller, and a later poll returns [`Error::AlreadyEnded`].
    ///
    /// ```
    /// use cuda_async::{Error, prelude::*, uninitialized};
    /// let op = uninitialized::<u8>(1 << 60).or_else(|error| {
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

    /// Waits until the device has completed this operation. A later step then receives an error of the device as an
    /// [`Error`]. If a step fails, the operation still waits for the work that it has submitted.
    ///
    /// # Errors
    /// The error of a step, or else the error of the device. [`Error::NeedsHostData`] in
    /// [`async_on`](DeviceOp::async_on), where no step may wait.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let op = h2d(vec![1u8; 100]).settled().map(|buffer| buffer.len()); // the copy is complete
    /// assert_eq!(op.sync()?, 100);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn settled(self) -> Op<Settled<<Self as DeviceOp>::Steps>> {
        Op::new(Settled::new(self.into_steps()))
    }

    /// Fails with [`Error::TimedOut`] if this operation is not [`settled`](DeviceOp::settled) within `duration` of its
    /// start. The timeout also ends the wait of [`sync`](DeviceOp::sync).
    ///
    /// Work that has begun runs to its end, because a device cannot be stopped. Other submitted work may be skipped, as for
    /// a dropped [`DeviceFuture`](crate::DeviceFuture). Later work on the same stream, also in an `or_else`, runs after
    /// it.
    ///
    /// # Errors
    /// [`Error::TimedOut`], or the errors of [`settled`](DeviceOp::settled). If [`named`](DeviceOp::named) is called
    /// after `timeout`, all of them have the name.
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

    /// Measures the time that this operation takes on its stream, by the device's clock. The time starts when earlier
    /// work of the stream is complete and ends when this operation is. Returns the output and the time.
    ///
    /// The operation is [`settled`](DeviceOp::settled) when this returns. The time includes the device's waits for work
    /// of other streams, and for the host if steps wait for host data. A small kernel writes each of the two times, so
    /// an operation without work takes some microseconds.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let (buffer, time) = zeros::<u8>(1 << 20).timed().sync()?;
    /// println!("{} bytes in {time:?}", buffer.len());
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a step. [`Error::NeedsHostData`] in [`async_on`](DeviceOp::async_on), where no step may wait.
    /// [`Error::Unsupported`] on a device without a clock.
    fn timed(self) -> Op<Timed<<Self as DeviceOp>::Steps>> {
        Op::new(Timed::new(self.into_steps()))
    }

    /// Gives this operation a name in graphs, plans, profiles, errors and [`tracing`](https://docs.rs/tracing). Names
    /// nest: `read` inside of `attention` is `attention/read`.
    ///
    /// - The nodes of a [graph](crate::graph) and of a [`Plan`](crate::graph::Plan) have the names of their operations.
    /// - An error of a step names the operation. [`Error::NeedsHostData`] has it as a field. Every other error becomes
    ///   [`Error::InOperation`], and [`Error::root`] is the error of the step: match that one. An error that the device
    ///   reports after the step was submitted, such as a fault, names the kernel and not the operation.
    /// - With the feature `spans`, the steps are submitted inside a span `operation` with the field `name`. The feature
    ///   also makes a span `run` for each run, from its beginning to its completion, and an event for each submission
    ///   (target `cuda_async::submission`, level `TRACE`) with the kernel or the bytes.
    ///
    /// Without the feature, a name costs a successful run one branch.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let op = h2d(vec![1u32, 2, 3]).named("upload").then(to_host);
    /// assert_eq!(op.sync()?, [1, 2, 3]);
    /// let error = zeros::<u32>(1).then(to_host).named("read").named("attention").graph().unwrap_err();
    /// assert_eq!(error.operation(), Some("attention/read"));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn named(self, name: &'static str) -> Op<Named<<Self as DeviceOp>::Steps>> {
        Op::new(Named::new(self.into_steps(), name))
    }

    /// Runs this operation on `device`, on a stream of the device's policy (see
    /// [`set_device_policy`](crate::runtime::set_device_policy)).
    ///
    /// If the run already uses that device, the operation continues on the run's stream. Otherwise it starts
    /// immediately and is not ordered after earlier device work of the run; only the values of earlier steps reach it.
    /// Later steps start when it is [`settled`](DeviceOp::settled), because the host keeps the order between devices.
    /// Output buffers live on `device`.
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
    /// The error of a step or of `device`; [`Error::NeedsHostData`] in [`async_on`](DeviceOp::async_on) on another
    /// device.
    fn on(self, device: &Device) -> Op<On<<Self as DeviceOp>::Steps>> {
        Op::new(On::new(self.into_steps(), device.clone()))
    }

    /// Lets each allocation of this operation, such as those of [`zeros`](crate::zeros), [`h2d`](crate::h2d) and
    /// tensors, wait for at most `max` if the device or the pool has too little memory. The library tries the
    /// allocation again when the device takes or completes work, which frees dropped memory, and after pauses of at
    /// most 50 ms. The wait blocks no thread. An inner `wait_for_memory` applies to its own part of the operation.
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
    /// [`Error::OutOfMemory`] after `max`. This also resolves a deadlock of operations that hold memory. The error
    /// comes at once if the request is larger than the device or the limit of its pool, and in
    /// [`async_on`](DeviceOp::async_on).
    fn wait_for_memory(self, max: Duration) -> Op<Allocating<<Self as DeviceOp>::Steps, Waiting>> {
        Op::new(Allocating::new(self.into_steps(), Waiting(max)))
    }

    /// Takes the memory of this operation from `pool`: every buffer, tensor and temporary that one of its steps
    /// allocates, also in its closures and branches. An inner `in_pool` applies to its own part of the operation.
    ///
    /// ```
    /// use cuda_async::{memory::{MemoryPool, PoolOptions}, prelude::*};
    /// let device = cuda_async::default_device()?;
    /// let pool = MemoryPool::new(&device, PoolOptions::new().named("scratch").limit(1 << 20))?;
    /// let x = h2d(vec![1u8; 100]).in_pool(&pool).sync()?;
    /// assert_eq!(pool.statistics()?.used, 100);
    /// # drop(x);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the operation runs on another device than that of the pool, or if a part of it
    /// allocates on another device. [`Error::OutOfMemory`], with the name of the pool, if the pool has reached its
    /// limit.
    fn in_pool(self, pool: &MemoryPool) -> Op<Allocating<<Self as DeviceOp>::Steps, FromPool>> {
        Op::new(Allocating::new(self.into_steps(), FromPool(pool.clone())))
    }

    /// Takes the value out of the `Arc` in the output. The `Arc` must have no other owner.
    ///
    /// # Errors
    /// [`Error::StillShared`] if it has other owners.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let table = h2d([1u32, 4, 9]).shared();
    /// let first = table.clone().then(to_host).map(|v| v[0]).sync()?;
    /// let buffer: DeviceBuffer<u32> = table.unwrap_arc().sync()?;
    /// assert_eq!((first, buffer.len()), (1, 3));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn unwrap_arc<T>(self) -> Op<Mapped<<Self as DeviceOp>::Steps, UnwrapArc>>
    where
        <Self as DeviceOp>::Steps: Submit<Output = Arc<T>>,
        T: Send,
    {
        Op::new(Mapped::new(self.into_steps(), UnwrapArc))
    }

    /// Shares one run of this operation among all its clones. The operation runs in the first clone that is run. Every
    /// clone gives the same `Arc`, or the same error.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let table = h2d(vec![1u32, 4, 9]).shared(); // one upload
    /// let (first, all) = (table.clone().then(to_host).map(|v| v[0]), table.then(to_host));
    /// assert_eq!(zip!(first, all).sync()?, (1, vec![1, 4, 9]));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of the operation. [`Error::Misuse`](crate::Error::Misuse) if the operation waits for its own result,
    /// directly or through other shared operations of the same run.
    fn shared(self) -> Op<Shared<<Self as DeviceOp>::Steps>>
    where
        <Self as DeviceOp>::Output: Sync,
    {
        Op::new(Shared::new(self.into_steps()))
    }

    /// Boxes the operation and hides its type. Operations of different types then fit in one `Vec` or in the arms of an
    /// `if`.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_async::BoxedOp;
    /// fn values(on_device: bool) -> BoxedOp<'static, Vec<u32>> {
    ///     if on_device { zeros(2).then(to_host).boxed() } else { value(vec![0, 0]).boxed() }
    /// }
    /// assert_eq!((values(true).sync()?, values(false).sync()?), (vec![0, 0], vec![0, 0]));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) when the operation runs, if it has more than
    /// [`MAX_NESTED_BOXES`](crate::ops::MAX_NESTED_BOXES) nested boxes. For loops and long chains use
    /// [`iterate`](crate::iterate), [`in_order`](crate::in_order) or [`script`](crate::script).
    fn boxed<'a>(self) -> BoxedOp<'a, <Self as DeviceOp>::Output>
    where
        Self: 'a,
        <Self as DeviceOp>::Steps: 'a,
    {
        Op::new(Boxed::new(self.into_steps()))
    }

    /// Runs the operation on the default policy and blocks the calling thread until it is complete. It needs no
    /// executor.
    ///
    /// In an async function use `.await` instead. There, `sync` stops the other tasks of its executor thread. If the
    /// operation waits for one of these tasks, as a [`script`](crate::script) can, `sync` never returns. A debug build
    /// logs a warning with `tracing`, once in the process, if the thread runs tasks of tokio.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// assert_eq!(h2d(vec![1u32, 2]).then(to_host).sync()?, [1, 2]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a step, or the error of the device. [`Error::Misuse`](crate::Error::Misuse) if a step needs wakers
    /// and this is called inside a waker, on the library's timer thread or on the device's completion thread.
    fn sync(self) -> Result<<Self as DeviceOp>::Output> {
        blocking::sync(self.into_steps())
    }

    /// Runs the operation on `stream` and blocks the calling thread until it is complete.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let stream = cuda_async::default_device()?.new_stream()?;
    /// let buffer = h2d(vec![1u32, 2]).sync_on(&stream)?;
    /// assert_eq!(to_host(buffer).sync_on(&stream)?, [1, 2]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`sync`](DeviceOp::sync).
    #[inline]
    fn sync_on(self, stream: &Stream) -> Result<<Self as DeviceOp>::Output> {
        blocking::sync_on(self.into_steps(), stream.clone())
    }

    /// Starts the operation immediately on a stream that `policy` chooses. The future waits for completion and returns
    /// all errors, also those of the start. Steps that wait for host data continue when the future is polled.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_async::policy::SingleStream;
    /// let policy = SingleStream::new(&cuda_async::default_device()?)?;
    /// let future = h2d(vec![1u32, 2]).then(to_host).schedule(&policy); // has started
    /// assert_eq!(futures::executor::block_on(future)?, [1, 2]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    #[inline]
    fn schedule<P>(self, policy: &P) -> DeviceFuture<<Self as DeviceOp>::Steps>
    where
        P: SchedulingPolicy + ?Sized,
    {
        DeviceFuture::scheduled(self.into_steps(), policy)
    }

    /// Submits the operation to `stream` without waiting for the device. Errors that occur on the device later are not
    /// reported. Handles in the output are safe to use in further operations.
    ///
    /// The credit of the stream is checked once, before the first step. So an operation of many steps may exceed the
    /// limits, and the streams of its forks are not checked. A refused operation is dropped with everything that it
    /// owns. To try again, pass buffers as `&mut`, or share them.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// let stream = cuda_async::default_device()?.new_stream()?;
    /// // SAFETY: only further operations use the buffer.
    /// let buffer = unsafe { h2d(vec![1u32, 2]).async_on(&stream) }?; // submitted, perhaps not complete
    /// assert_eq!(to_host(buffer).sync_on(&stream)?, [1, 2]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if the stream has as much in flight as its device allows; nothing is
    /// submitted then. [`Error::NeedsHostData`](crate::Error::NeedsHostData) if a step has to wait; work that was
    /// submitted before that runs. Otherwise the error of a step.
    ///
    /// # Safety
    /// Foreign code that uses the output must be ordered after `stream`.
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
