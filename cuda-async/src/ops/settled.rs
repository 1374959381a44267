//! `settled`: waits until the device has completed an operation.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result, Waiter};

use crate::{
    context::ExecutionContext,
    op::{Live, Submit},
};

/// The steps of [`DeviceOp::settled`](crate::ops::DeviceOp::settled).
pub struct Settled<S: Submit>(Live<State<S, S::Output>>);

enum State<S, T> {
    Idle(S),
    /// Holds the last submission of the context before these steps began.
    Submitting(S, Option<u64>),
    Executing(Executing<T>),
}

/// The steps have submitted their work, or have failed, and the device runs the submitted work.
struct Executing<T> {
    submitted: Result<T>,
    number: u64,
    waiter: Option<Waiter>,
}

impl<S: Submit> Settled<S> {
    pub(crate) const fn new(steps: S) -> Self {
        Self(Live::new(State::Idle(steps)))
    }

    /// Polls the steps. Goes on to `Executing`, or is ready with their result if they have submitted nothing.
    fn poll_steps(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Option<Result<S::Output>>> {
        let Ok(State::Submitting(steps, before)) = self.0.get() else { return Poll::Ready(None) };
        let submitted = ready!(steps.poll_submit(task, cx));
        let last = cx.last().filter(|number| Some(*number) > *before);
        self.0.end(); // drops the inputs of the steps
        Poll::Ready(match last {
            None => Some(submitted),
            Some(number) => {
                self.0.set(State::Executing(Executing { submitted, number, waiter: None }));
                None
            }
        })
    }
}

impl<S: Submit> Submit for Settled<S> {
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        if let State::Idle(_) = self.0.get()?
            && let State::Idle(steps) = self.0.take()?
        {
            cx.may_wait("settled")?;
            self.0.set(State::Submitting(steps, cx.last()));
        }
        if let Some(submitted) = ready!(self.poll_steps(task, cx)) {
            return Poll::Ready(submitted);
        }
        let State::Executing(executing) = self.0.get()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let completed = ready!(cx.poll_submission(executing.number, &mut executing.waiter, task));
        let State::Executing(executing) = self.0.take()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        Poll::Ready(executing.submitted.and_then(|output| completed.map(|()| output)))
    }

    fn nested_boxes(&self) -> usize {
        match self.0.peek() {
            Some(State::Idle(steps) | State::Submitting(steps, _)) => steps.nested_boxes(),
            Some(State::Executing(_)) | None => 0,
        }
    }
}

/// Returns whether this error of an operation says only that it panicked in an earlier poll. The operation did not fail, so
/// `or_else` and `retry` do not recover from it.
pub(super) fn has_panicked(error: &Error) -> bool {
    *error.root() == Error::AlreadyEnded
}
