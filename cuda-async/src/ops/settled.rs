//! `settled`: not done before the device is.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result, Waiter};

use crate::{context::ExecutionContext, op::Submit};

/// Steps of [`DeviceOp::settled`](crate::DeviceOp::settled).
pub struct Settled<S: Submit>(State<S, S::Output>);

enum State<S, T> {
    Idle(S),
    /// With the last submission before it began.
    Runs(S, Option<u64>),
    Waits(Waits<T>),
    Ended,
}

/// All is submitted, or failed to be.
struct Waits<T> {
    submitted: Result<T>,
    number: u64,
    waiter: Option<Waiter>,
}

impl<S: Submit> Settled<S> {
    pub(crate) const fn new(steps: S) -> Self {
        Self(State::Idle(steps))
    }

    /// Takes the state to `Waits`; ready if there is nothing to wait for.
    fn poll_steps(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Option<Result<S::Output>>> {
        let State::Runs(steps, before) = &mut self.0 else { return Poll::Ready(None) };
        let submitted = ready!(steps.poll_submit(task, cx));
        let waits_for = cx.last().filter(|number| Some(*number) > *before);
        self.0 = State::Ended; // and with that its inputs are dropped
        Poll::Ready(match waits_for {
            None => Some(submitted),
            Some(number) => {
                self.0 = State::Waits(Waits { submitted, number, waiter: None });
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
        self.0 = match std::mem::replace(&mut self.0, State::Ended) {
            State::Idle(steps) => {
                cx.may_wait()?;
                State::Runs(steps, cx.last())
            }
            begun => begun,
        };
        if let Some(nothing_to_wait_for) = ready!(self.poll_steps(task, cx)) {
            return Poll::Ready(nothing_to_wait_for);
        }
        let State::Waits(waits) = &mut self.0 else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let ran = ready!(cx.poll_submission(waits.number, &mut waits.waiter, task));
        match std::mem::replace(&mut self.0, State::Ended) {
            State::Waits(waits) => Poll::Ready(waits.submitted.and_then(|x| ran.map(|()| x))),
            _ => Poll::Ready(Err(Error::AlreadyEnded)),
        }
    }
}
