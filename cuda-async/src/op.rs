//! Device operations: the steps that submit work ([`Submit`]), and the value that holds them ([`Op`]).
//!
//! To write an operation of your own, implement [`Submit`] for its steps and wrap them in [`Op`]. To take one as an
//! argument, write `impl DeviceOp<Output = T>`, or [`IntoDeviceOp`] to take tuples, vectors and results of operations
//! too.
// Every combinator and every custom operation implements the traits of this file. This file uses only `context`. `run`
// drives the steps, and `ops`, `memory` and `kernel` implement them. A typical call goes from `Submit::submit` to
// `ExecutionContext::enqueue`.

use std::task::{Context, Poll};

use cuda_core::{Error, Result};

use crate::context::ExecutionContext;

/// The steps of an operation: a state machine that submits its work. Combinators and custom operations implement this
/// trait.
///
/// [`submit`](Submit::submit) takes the steps by value, enqueues the work that can be enqueued now, and returns
/// - [`Submitted::Ready`] when all of it is *submitted*. The device may still be running it. The output may hold a
///   handle to device memory that the device still writes, because a handle can only enqueue more work behind that.
///   *Host* data in the output is complete.
/// - [`Submitted::Pending`], with the steps that are left, when they wait for the device or for another thread. They
///   will wake `task`, and the run then submits them again, with the context of the same run.
/// - an error, which ends the operation.
///
/// Steps that have ended no longer exist, so no run submits them again. Steps never block.
///
/// ```
/// use std::task::Context;
/// use cuda_async::{Error, ExecutionContext, context::CreditWait, op::{Submit, Submitted}, prelude::*};
///
/// /// Runs other steps, and copies the buffer that they give.
/// enum Duplicate<S> {
///     Running(S),
///     /// The other steps have ended, and this waits for credit.
///     Copying(DeviceBuffer<u32>, CreditWait),
/// }
///
/// impl<S: Submit<Output = DeviceBuffer<u32>>> Submit for Duplicate<S> {
///     type Output = (DeviceBuffer<u32>, DeviceBuffer<u32>);
///
///     fn submit(
///         self,
///         task: &mut Context<'_>,
///         cx: &ExecutionContext,
///     ) -> Result<Submitted<Self>, Error> {
///         let (buffer, mut credit) = match self {
///             Self::Running(steps) => match steps.submit(task, cx)? {
///                 Submitted::Ready(buffer) => (buffer, CreditWait::new()),
///                 Submitted::Pending(steps) => return Ok(Submitted::Pending(Self::Running(steps))),
///             },
///             Self::Copying(buffer, credit) => (buffer, credit),
///         };
///         // The stream may have too much in flight. Then this is pending, and wakes the task when some of it is complete.
///         if cx.poll_credit(&mut credit, task)?.is_pending() {
///             return Ok(Submitted::Pending(Self::Copying(buffer, credit)));
///         }
///         let copy = cx.enqueue(|stream| {
///             let mut copy = DeviceBuffer::uninitialized(stream, buffer.len())?;
///             copy.copy_from(stream, buffer.as_slice())?;
///             Ok(copy)
///         })?;
///         Ok(Submitted::Ready((buffer, copy)))
///     }
/// }
///
/// fn duplicated(
///     op: impl DeviceOp<Output = DeviceBuffer<u32>>,
/// ) -> impl DeviceOp<Output = (DeviceBuffer<u32>, DeviceBuffer<u32>)> {
///     Op::new(Duplicate::Running(op.into_steps()))
/// }
///
/// # fn main() -> Result<(), Error> {
/// let (x, copy) = duplicated(h2d(vec![1u32, 2, 3])).sync()?;
/// assert_eq!((to_host(x).sync()?, to_host(copy).sync()?), (vec![1, 2, 3], vec![1, 2, 3]));
/// # Ok(())
/// # }
/// ```
pub trait Submit: Send + Sized {
    /// The output of the operation.
    type Output: Send;

    /// Enqueues the work that can be enqueued now.
    ///
    /// # Errors
    /// The error of a step. It ends the operation.
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>>;
}

/// The result of [`Submit::submit`]: the output, or the steps that wait.
#[derive(Debug)]
pub enum Submitted<S: Submit> {
    /// All work is enqueued.
    Ready(S::Output),
    /// These steps wait, and will wake the task.
    Pending(S),
}

impl<S: Submit> Submitted<S> {
    /// Calls `poll` on the steps and converts its result: an output becomes [`Ready`](Self::Ready), and pending becomes
    /// [`Pending`](Self::Pending) with the steps.
    ///
    /// # Errors
    /// The error that `poll` returns.
    #[inline]
    pub fn poll(
        mut steps: S,
        poll: impl FnOnce(&mut S) -> Poll<Result<S::Output>>,
    ) -> Result<Self> {
        match poll(&mut steps) {
            Poll::Ready(output) => output.map(Self::Ready),
            Poll::Pending => Ok(Self::Pending(steps)),
        }
    }

    /// Wraps pending steps with `f`, so that a combinator can return them inside its own. A ready output stays.
    #[inline]
    pub fn map_pending<T>(self, f: impl FnOnce(S) -> T) -> Submitted<T>
    where
        T: Submit<Output = S::Output>,
    {
        match self {
            Self::Ready(output) => Submitted::Ready(output),
            Self::Pending(steps) => Submitted::Pending(f(steps)),
        }
    }
}

/// Submits steps that are stored in `slot`, as a poll. The slot is empty once the steps have ended.
///
/// # Errors
/// The error of the steps; [`Error::AlreadyEnded`] if the slot is empty.
#[inline]
pub fn poll_stored<S: Submit>(
    slot: &mut Option<S>,
    task: &mut Context<'_>,
    cx: &ExecutionContext,
) -> Poll<Result<S::Output>> {
    let steps = slot.take().ok_or(Error::AlreadyEnded)?;
    match steps.submit(task, cx)? {
        Submitted::Ready(output) => Poll::Ready(Ok(output)),
        Submitted::Pending(steps) => {
            *slot = Some(steps);
            Poll::Pending
        }
    }
}

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

    #[inline(always)] // so the steps are not copied when they are taken out of the operation
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        Ok(self.0?.submit(task, cx)?.map_pending(|steps| Self(Ok(steps))))
    }
}

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

/// The span of a run or of a named operation. Clones are the same span.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpSpan(#[cfg(feature = "spans")] Option<tracing::Span>);

impl OpSpan {
    /// The span of a run. It ends when the last clone is dropped.
    #[inline(always)]
    pub(crate) fn of_run(cx: &ExecutionContext) -> Self {
        #[cfg(feature = "spans")]
        return Self(enabled::span_of_run(cx));
        #[cfg(not(feature = "spans"))]
        {
            let _ = cx;
            Self()
        }
    }

    /// The span of a named operation.
    #[inline(always)]
    pub(crate) fn of_named(name: &'static str) -> Self {
        #[cfg(feature = "spans")]
        return Self(enabled::span_of_named(name));
        #[cfg(not(feature = "spans"))]
        {
            let _ = name;
            Self()
        }
    }

    /// Calls `run` inside the span.
    #[inline(always)]
    pub(crate) fn in_scope<T>(&self, run: impl FnOnce() -> T) -> T {
        #[cfg(feature = "spans")]
        if let Some(span) = &self.0 {
            return span.in_scope(run);
        }
        run()
    }
}

#[cfg(feature = "spans")]
mod enabled {
    use tracing::{Span, debug_span};

    use crate::context::ExecutionContext;

    const TARGET: &str = "cuda_async";

    /// `None` if the span is disabled, so that the run does not store one.
    #[inline]
    pub(super) fn span_of_run(cx: &ExecutionContext) -> Option<Span> {
        let device = || cx.device().info().address.as_str();
        let span = debug_span!(target: TARGET, "run", device = device());
        (!span.is_disabled()).then_some(span)
    }

    #[inline]
    pub(super) fn span_of_named(name: &'static str) -> Option<Span> {
        let span = debug_span!(target: TARGET, "operation", name);
        (!span.is_disabled()).then_some(span)
    }
}
