//! `settled`: waits until the device has completed an operation.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result, Waiter};

use crate::{
    context::ExecutionContext,
    op::{Live, Submit},
};

/// The steps of [`DeviceOp::settled`](crate::ops::DeviceOp::settled).
pub struct Settled<S: Submit> {
    state: Live<State<S, S::Output>>,
    /// Whether a poll of the inner steps has begun and not returned.
    is_polling: bool,
}

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
        Self { state: Live::new(State::Idle(steps)), is_polling: false }
    }

    /// Whether the inner steps panicked in an earlier poll. Their error then says nothing about the operation, so
    /// `or_else` and `retry` do not recover from it.
    pub(super) const fn has_panicked(&self) -> bool {
        self.is_polling
    }

    /// Polls the steps. Goes on to `Executing`, or is ready with their result if they have submitted nothing.
    fn poll_steps(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Option<Result<S::Output>>> {
        let Ok(State::Submitting(steps, before)) = self.state.get() else {
            return Poll::Ready(None);
        };
        if std::mem::replace(&mut self.is_polling, true) {
            return Poll::Ready(Some(Err(Error::AlreadyEnded)));
        }
        let submitted = steps.poll_submit(task, cx);
        self.is_polling = false;
        let submitted = ready!(submitted);
        let last = cx.last().filter(|number| Some(*number) > *before);
        self.state.end(); // drops the inputs of the steps
        Poll::Ready(match last {
            None => Some(submitted),
            Some(number) => {
                self.state.set(State::Executing(Executing { submitted, number, waiter: None }));
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
        if let State::Idle(_) = self.state.get()?
            && let State::Idle(steps) = self.state.take()?
        {
            cx.may_wait("settled")?;
            self.state.set(State::Submitting(steps, cx.last()));
        }
        if let Some(submitted) = ready!(self.poll_steps(task, cx)) {
            return Poll::Ready(submitted);
        }
        let State::Executing(executing) = self.state.get()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let completed = ready!(cx.poll_submission(executing.number, &mut executing.waiter, task));
        let State::Executing(executing) = self.state.take()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        Poll::Ready(executing.submitted.and_then(|output| completed.map(|()| output)))
    }

    fn nested_boxes(&self) -> usize {
        match self.state.peek() {
            Some(State::Idle(steps) | State::Submitting(steps, _)) => steps.nested_boxes(),
            Some(State::Executing(_)) | None => 0,
        }
    }
}
