//! An operation that is being run by an executor.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use cuda_core::{Error, Result, Stream, Waiter};

use crate::{ExecutionContext, SchedulingPolicy, Submit, context::Run, defaults};

/// Runs an operation: submits its steps, then waits for the device without a thread.
///
/// Dropping it is sound at any time and never blocks: what is submitted runs on, and its memory is freed
/// behind it.
#[must_use = "futures do nothing unless polled"]
pub struct DeviceFuture<S: Submit>(State<S>);

enum State<S: Submit> {
    /// Nothing has begun.
    Idle(S),
    /// Steps are being submitted, and some wait.
    Submitting(S, ExecutionContext),
    /// All is submitted; the device runs it.
    Executing(S::Output, Option<Waiter>),
    /// It failed before it could begin.
    Failed(Error),
    /// The output was handed out.
    Ended,
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
        Self(State::Submitting(steps, ExecutionContext::root(stream, Run::Async)))
    }

    /// Takes the state from `Submitting` to `Executing`.
    fn submit(&mut self, task: &mut Context<'_>) -> Poll<Result<()>> {
        let State::Submitting(steps, cx) = &mut self.0 else { return Poll::Ready(Ok(())) };
        let output = match ready!(steps.poll_submit(task, cx)) {
            Ok(output) => output,
            Err(error) => return self.end(Err(error)),
        };
        let waiter = match cx.last_submission() {
            Some((stream, number)) => stream.waiter(number).map(Some),
            None => Ok(None),
        };
        match waiter {
            Ok(waiter) => self.0 = State::Executing(output, waiter),
            Err(error) => return self.end(Err(error)),
        }
        Poll::Ready(Ok(()))
    }

    fn end<T>(&mut self, outcome: Result<T>) -> Poll<Result<T>> {
        self.0 = State::Ended;
        Poll::Ready(outcome)
    }
}

impl<S: Submit> Future for DeviceFuture<S> {
    type Output = Result<S::Output>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Idle(_) = self.0 {
            let placed = ready!(defaults::poll_place(task));
            let State::Idle(steps) = std::mem::replace(&mut self.0, State::Ended) else {
                return Poll::Ready(Err(Error::AlreadyEnded));
            };
            *self = Self::on(steps, placed?);
        }
        if let State::Submitting(..) = self.0 {
            ready!(self.submit(task))?;
        }
        if let State::Executing(_, Some(waiter)) = &mut self.0
            && let Err(error) = ready!(waiter.poll(task))
        {
            return self.end(Err(error));
        }
        match std::mem::replace(&mut self.0, State::Ended) {
            State::Executing(output, ..) => Poll::Ready(Ok(output)),
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
