//! `timeout`: an end to the wait.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use cuda_core::{Error, Result};

use crate::{context::ExecutionContext, op::Submit, ops::settled::Settled, wake::timer::Sleep};

/// Steps of [`DeviceOp::timeout`](crate::DeviceOp::timeout).
pub struct Timeout<S: Submit>(State<S>);

enum State<S: Submit> {
    Idle(S, Duration),
    Runs(Runs<S>),
    Ended,
}

struct Runs<S: Submit> {
    steps: Settled<S>,
    /// On the same stream: what is given up is not waited for.
    cx: ExecutionContext,
    sleep: Sleep,
    after: Duration,
}

impl<S: Submit> Timeout<S> {
    pub(crate) const fn new(steps: S, after: Duration) -> Self {
        Self(State::Idle(steps, after))
    }
}

impl<S: Submit> Runs<S> {
    fn new(steps: S, after: Duration, cx: &ExecutionContext, task: &Context<'_>) -> Result<Self> {
        cx.wait_by_wakers(task)?;
        let (cx, sleep) = (cx.sibling()?, Sleep::new(after));
        Ok(Self { steps: Settled::new(steps), cx, sleep, after })
    }

    /// The steps first: what is done when it is late to ask is done.
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<S::Output>> {
        if let Poll::Ready(output) = self.steps.poll_submit(task, &self.cx) {
            return Poll::Ready(output);
        }
        ready!(self.sleep.poll(task))?;
        Poll::Ready(Err(Error::TimedOut { after: self.after }))
    }
}

impl<S: Submit> Submit for Timeout<S> {
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        self.0 = match std::mem::replace(&mut self.0, State::Ended) {
            State::Idle(steps, after) => State::Runs(Runs::new(steps, after, cx, task)?),
            begun => begun,
        };
        let State::Runs(runs) = &mut self.0 else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let output = ready!(runs.poll(task));
        if !matches!(output, Err(Error::TimedOut { .. })) {
            cx.join_sibling(&runs.cx);
        }
        self.0 = State::Ended;
        Poll::Ready(output)
    }
}
