//! An operation that is being run by an executor.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use cuda_core::{Error, Result, Stream, Waiter};

use crate::{
    context::{ExecutionContext, Run, spin::InFlight},
    op::{Op, Submit},
    policy::SchedulingPolicy,
    runtime::defaults,
};

/// Runs an operation: submits its steps, then waits for the device without a thread.
///
/// Dropping it is sound at any time and never blocks: what is submitted runs on, and its memory is freed
/// behind it.
#[must_use = "it waits, and gives what went wrong, only when it is polled; what `schedule` has submitted runs anyway"]
pub struct DeviceFuture<S: Submit>(State<S>);

enum State<S: Submit> {
    /// Nothing has begun.
    Idle(S),
    /// Steps are being submitted, and some wait.
    Submitting(S, Begun),
    /// All is submitted; the device runs it.
    Executing(S::Output, Begun),
    /// It failed before it could begin.
    Failed(Error),
    /// The output was handed out.
    Ended,
}

/// A run that has begun.
struct Begun {
    cx: ExecutionContext,
    /// For its last submission.
    waiter: Option<Waiter>,
    _in_flight: InFlight,
}

// Nothing in it is pinned: steps are polled by plain reference and never refer to themselves.
impl<S: Submit> Unpin for DeviceFuture<S> {}

impl<S: Submit> DeviceFuture<S> {
    pub(crate) fn idle(steps: S) -> Self {
        Self(State::Idle(steps))
    }

    /// Polls once now; whatever waits is asked again, with a waker, when the future is polled.
    pub(crate) fn scheduled<P: SchedulingPolicy + ?Sized>(steps: S, policy: &P) -> Self {
        let stream = match policy.place() {
            Ok(stream) => stream,
            Err(error) => return Self(State::Failed(error)),
        };
        let mut future = Self::on(steps, stream);
        let submitted = future.submit(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(Err(error)) = submitted {
            future.0 = State::Failed(error);
        }
        future
    }

    fn on(steps: S, stream: Stream) -> Self {
        let cx = ExecutionContext::root(stream, Run::Async);
        Self(State::Submitting(steps, Begun { cx, waiter: None, _in_flight: InFlight::new() }))
    }

    /// Takes the state from `Submitting` to `Executing`.
    fn submit(&mut self, task: &mut Context<'_>) -> Poll<Result<()>> {
        let State::Submitting(steps, begun) = &mut self.0 else { return Poll::Ready(Ok(())) };
        let output = ready!(steps.poll_submit(task, &begun.cx));
        if let State::Submitting(steps, begun) = std::mem::replace(&mut self.0, State::Ended) {
            drop(steps);
            self.0 = State::Executing(output?, begun);
        }
        Poll::Ready(Ok(()))
    }
}

impl Begun {
    /// Ready when the device has run the last submission; at once if there is none.
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<()>> {
        match self.cx.last() {
            Some(number) => self.cx.poll_submission(number, &mut self.waiter, task),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl<S: Submit> IntoFuture for Op<S> {
    type Output = Result<S::Output>;
    type IntoFuture = DeviceFuture<S>;

    /// The future runs on the default policy of the process; see
    /// [`set_default_policy`](crate::runtime::set_default_policy).
    fn into_future(self) -> DeviceFuture<S> {
        DeviceFuture::idle(self.into_steps())
    }
}

impl<S: Submit> Future for DeviceFuture<S> {
    type Output = Result<S::Output>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Idle(_) = self.0 {
            let placed = ready!(defaults::poll_default_stream(task));
            let State::Idle(steps) = std::mem::replace(&mut self.0, State::Ended) else {
                return Poll::Ready(Err(Error::AlreadyEnded));
            };
            *self = Self::on(steps, placed?);
        }
        if let State::Submitting(..) = self.0 {
            ready!(self.submit(task))?;
        }
        let ran = match &mut self.0 {
            State::Executing(_, begun) => ready!(begun.poll(task)),
            _ => Ok(()),
        };
        match std::mem::replace(&mut self.0, State::Ended) {
            State::Executing(output, _) => Poll::Ready(ran.map(|()| output)),
            State::Failed(error) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Err(Error::AlreadyEnded)),
        }
    }
}

impl<S: Submit> std::fmt::Debug for DeviceFuture<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            State::Idle(_) => "DeviceFuture(idle)",
            State::Submitting(..) => "DeviceFuture(submitting)",
            State::Executing(..) => "DeviceFuture(executing)",
            State::Failed(_) => "DeviceFuture(failed)",
            State::Ended => "DeviceFuture(ended)",
        })
    }
}
