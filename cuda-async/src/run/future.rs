//! `DeviceFuture`: an operation that an executor runs.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    task::{Context, Poll, Waker},
};

use cuda_core::{Error, Result, Stream, Waiter, internals::report_before_others};
use parking::Parker;

use crate::{
    context::{ExecutionContext, RunInFlight, RunMode, check_may_park},
    op::{Op, OpSpan, Submit, Submitted},
    policy::SchedulingPolicy,
    run::blocking::report_blocked_task,
    runtime::defaults,
};

/// The future of an operation: it submits the steps, then waits for the device without blocking a thread.
///
/// It can be dropped at any time, and the drop never blocks. Work that has begun runs to its end, and its memory is freed
/// after that. The CPU device, also a leased one, skips work that has not begun if nothing can see its results any more:
/// the outputs were dropped, and no other work reads them. A skipped kernel reports no fault. Other devices run all
/// submitted work.
#[must_use = "the future waits and reports errors only when it is polled; dropping it cancels its work"]
pub struct DeviceFuture<S: Submit>(Option<State<S>>);

enum State<S: Submit> {
    /// The run has not begun.
    Idle(S),
    /// The steps submit work, and some of them wait.
    Submitting(S, Run),
    /// All work is submitted, and the device runs it. The output is taken when it is complete.
    Executing(S::Output, Run),
    /// Placing the operation failed, or a step failed inside `schedule`.
    Failed(Error),
}

/// A run that has begun.
struct Run {
    cx: ExecutionContext,
    /// The waiter for the last submission.
    waiter: Option<Waiter>,
    span: OpSpan,
    _in_flight: RunInFlight,
}

// Nothing in the future is pinned: steps are moved whenever they are submitted.
impl<S: Submit> Unpin for DeviceFuture<S> {}

impl<S: Submit> DeviceFuture<S> {
    pub(crate) fn idle(steps: S) -> Self {
        Self(Some(State::Idle(steps)))
    }

    /// Submits the work that can be submitted now. Steps that wait are polled again, with a waker, when the future is
    /// polled.
    pub(crate) fn scheduled<P: SchedulingPolicy + ?Sized>(steps: S, policy: &P) -> Self {
        let stream = match policy.place() {
            Ok(stream) => stream,
            Err(error) => return Self(Some(State::Failed(error))),
        };
        report_before_others(&stream);
        let run = Run::on(stream);
        let task = &mut Context::from_waker(Waker::noop());
        Self(Some(match run.submit(|cx| steps.submit(task, cx)) {
            Ok(Submitted::Ready(output)) => State::Executing(output, run),
            Ok(Submitted::Pending(steps)) => State::Submitting(steps, run),
            Err(error) => State::Failed(error),
        }))
    }

    /// Blocks the calling thread until the operation is complete. This is for code without an executor that started the
    /// operation with [`schedule`](crate::DeviceOp::schedule).
    ///
    /// ```
    /// use cuda_async::{policy::SingleStream, prelude::*};
    /// let policy = SingleStream::new(&cuda_async::default_device()?)?;
    /// let sum = h2d(vec![1u32, 2, 3]).then(to_host).schedule(&policy); // runs while this thread goes on
    /// assert_eq!(sum.wait()?, [1, 2, 3]);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of `.await`. [`Error::Misuse`] if this is called inside a waker, on the library's timer thread
    /// or on the device's completion thread, or inside the output function of the device.
    pub fn wait(mut self) -> Result<S::Output> {
        report_blocked_task();
        let parker = Parker::new();
        let waker = Waker::from(parker.unparker());
        loop {
            match Pin::new(&mut self).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(ended) => return ended,
                Poll::Pending => {
                    self.check_may_park()?;
                    parker.park();
                }
            }
        }
    }

    /// Checks that another thread calls the wakers of this future.
    fn check_may_park(&self) -> Result<()> {
        check_may_park(match &self.0 {
            Some(State::Submitting(_, run) | State::Executing(_, run)) => Some(run.cx.device()),
            _ => None,
        })
    }
}

impl Run {
    #[inline]
    fn on(stream: Stream) -> Self {
        let cx = ExecutionContext::root(stream, RunMode::Async);
        let span = OpSpan::of_run(&cx);
        Self { cx, waiter: None, span, _in_flight: RunInFlight::new() }
    }

    /// Submits work of the run, inside its span.
    #[inline]
    fn submit<R>(&self, submit: impl FnOnce(&ExecutionContext) -> Result<R>) -> Result<R> {
        self.span.in_scope(|| self.cx.in_window(|| submit(&self.cx)))
    }

    /// Ready when the device has completed the last submission; at once if there is none.
    #[inline]
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<()>> {
        match self.cx.last() {
            Some(number) => self.cx.waits().poll_submission(number, &mut self.waiter, task),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl<S: Submit> IntoFuture for Op<S> {
    type Output = Result<S::Output>;
    type IntoFuture = DeviceFuture<S>;

    /// Returns a future that runs on the default policy of the process; see
    /// [`set_default_policy`](crate::runtime::set_default_policy).
    #[inline]
    fn into_future(self) -> DeviceFuture<S> {
        DeviceFuture::idle(self.into_steps())
    }
}

/// Never implemented: it carries the compiler's message where an operation is used as a future.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a device operation is not a future",
    label = "`.into_future()` converts the operation into a future",
    note = "write `tokio::spawn(op.into_future())`; `.await`, `join!` and `select!` take the operation itself",
    note = "a stream of operations runs with `run_buffered(n)`, not with `buffered(n)`"
)]
pub trait IsFuture {}

/// The type that does not implement [`IsFuture`]. The lifetime defers the check to the uses of an operation.
#[doc(hidden)]
#[derive(Debug)]
pub struct Operation<'a>(std::marker::PhantomData<&'a ()>);

/// Applies to no operation, because no type implements [`IsFuture`]. Where a program uses an operation as a future, the
/// compiler reports the missing [`IsFuture`], and its message says what to write.
#[doc(hidden)]
impl<S: Submit> Future for Op<S>
where
    for<'a> Operation<'a>: IsFuture,
{
    type Output = Result<S::Output>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(Error::AlreadyEnded))
    }
}

impl<S: Submit> Future for DeviceFuture<S> {
    type Output = Result<S::Output>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let (steps, run) = match self.0.take().ok_or(Error::AlreadyEnded)? {
            State::Idle(steps) => match defaults::poll_default_stream(task) {
                Poll::Ready(stream) => (steps, Run::on(stream?)),
                Poll::Pending => {
                    self.0 = Some(State::Idle(steps));
                    return Poll::Pending;
                }
            },
            State::Submitting(steps, run) => (steps, run),
            State::Executing(output, run) => return self.poll_executing(output, run, task),
            State::Failed(error) => return Poll::Ready(Err(error)),
        };
        match run.submit(|cx| steps.submit(task, cx))? {
            Submitted::Ready(output) => self.poll_executing(output, run, task),
            Submitted::Pending(steps) => {
                self.0 = Some(State::Submitting(steps, run));
                Poll::Pending
            }
        }
    }
}

impl<S: Submit> DeviceFuture<S> {
    /// Waits for the device. An operation that is complete within its first poll is never stored.
    #[inline]
    fn poll_executing(
        &mut self,
        output: S::Output,
        mut run: Run,
        task: &mut Context<'_>,
    ) -> Poll<Result<S::Output>> {
        match run.poll(task) {
            Poll::Ready(completed) => Poll::Ready(completed.map(|()| output)),
            Poll::Pending => {
                self.0 = Some(State::Executing(output, run));
                Poll::Pending
            }
        }
    }
}

impl<S: Submit> std::fmt::Debug for DeviceFuture<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Some(State::Idle(_)) => "DeviceFuture(idle)",
            Some(State::Submitting(..)) => "DeviceFuture(submitting)",
            Some(State::Executing(..)) => "DeviceFuture(executing)",
            Some(State::Failed(_)) => "DeviceFuture(failed)",
            None => "DeviceFuture(ended)",
        })
    }
}
