//! `wait_for_memory`: memory that is in use now may come back.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use cuda_core::{Error, Result};

use crate::{context::ExecutionContext, op::Submit};

/// Steps of [`DeviceOp::wait_for_memory`](crate::DeviceOp::wait_for_memory).
pub struct WaitForMemory<S>(State<S>);

enum State<S> {
    Idle(S, Duration),
    Runs(S, ExecutionContext),
    Ended,
}

impl<S> WaitForMemory<S> {
    pub(crate) const fn new(steps: S, max: Duration) -> Self {
        Self(State::Idle(steps, max))
    }
}

impl<S: Submit> Submit for WaitForMemory<S> {
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        self.0 = match std::mem::replace(&mut self.0, State::Ended) {
            State::Idle(steps, max) => State::Runs(steps, cx.with_memory_wait(max)?),
            begun => begun,
        };
        let State::Runs(steps, patient) = &mut self.0 else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let output = ready!(steps.poll_submit(task, patient));
        cx.join_sibling(patient);
        self.0 = State::Ended;
        Poll::Ready(output)
    }
}
