//! `settled`: waits until the device has completed an operation.

use std::task::{Context, Poll};

use cuda_core::{Result, Waiter};

use crate::{
    context::ExecutionContext,
    op::{Submit, Submitted},
};

/// The steps of [`DeviceOp::settled`](crate::ops::DeviceOp::settled).
pub struct Settled<S: Submit>(State<S, S::Output>);

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
        Self(State::Idle(steps))
    }
}

impl<S: Submit> Submit for Settled<S> {
    type Output = S::Output;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let (steps, before) = match self.0 {
            State::Idle(steps) => {
                cx.waits().may_wait("settled")?;
                (steps, cx.last())
            }
            State::Submitting(steps, before) => (steps, before),
            State::Executing(executing) => return executing.wait(task, cx),
        };
        let submitted = match steps.submit(task, cx) {
            Ok(Submitted::Pending(steps)) => {
                return Ok(Submitted::Pending(Self(State::Submitting(steps, before))));
            }
            Ok(Submitted::Ready(output)) => Ok(output),
            Err(error) => Err(error),
        };
        match cx.last().filter(|number| Some(*number) > before) {
            None => submitted.map(Submitted::Ready),
            Some(number) => Executing { submitted, number, waiter: None }.wait(task, cx),
        }
    }
}

impl<T> Executing<T> {
    fn wait<S: Submit<Output = T>>(
        mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Result<Submitted<Settled<S>>> {
        match cx.waits().poll_submission(self.number, &mut self.waiter, task) {
            Poll::Pending => Ok(Submitted::Pending(Settled(State::Executing(self)))),
            Poll::Ready(completed) => {
                let output = self.submitted?;
                completed?;
                Ok(Submitted::Ready(output))
            }
        }
    }
}
