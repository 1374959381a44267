//! `timeout`: ends the wait for an operation after a time.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{Submit, Submitted, poll_stored},
    ops::settled::Settled,
    wake::timer::Sleep,
};

/// The steps of [`DeviceOp::timeout`](crate::ops::DeviceOp::timeout).
pub struct Timeout<S: Submit>(State<S>);

enum State<S: Submit> {
    Idle(S, Duration),
    Running(Box<Running<S>>),
}

struct Running<S: Submit> {
    steps: Option<Settled<S>>,
    /// A context on the same stream. The run does not wait for its work if the time is over first.
    cx: ExecutionContext,
    sleep: Sleep,
    after: Duration,
}

impl<S: Submit> Timeout<S> {
    pub(crate) const fn new(steps: S, after: Duration) -> Self {
        Self(State::Idle(steps, after))
    }
}

impl<S: Submit> Running<S> {
    fn new(steps: S, after: Duration, cx: &ExecutionContext, task: &Context<'_>) -> Result<Self> {
        cx.waits().wait_by_wakers("timeout", task)?;
        let (cx, sleep) = (cx.sibling()?, Sleep::new(after));
        Ok(Self { steps: Some(Settled::new(steps)), cx, sleep, after })
    }

    /// Polls the steps before the clock: work that is complete when the poll comes late counts as complete.
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<S::Output>> {
        if let Poll::Ready(output) = poll_stored(&mut self.steps, task, &self.cx) {
            return Poll::Ready(output);
        }
        ready!(self.sleep.poll(task))?;
        Poll::Ready(Err(Error::TimedOut { after: self.after }))
    }
}

impl<S: Submit> Submit for Timeout<S> {
    type Output = S::Output;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let mut running = match self.0 {
            State::Idle(steps, after) => Box::new(Running::new(steps, after, cx, task)?),
            State::Running(running) => running,
        };
        let Poll::Ready(output) = running.poll(task) else {
            return Ok(Submitted::Pending(Self(State::Running(running))));
        };
        let joined = match output.as_ref().map_err(Error::root) {
            Err(Error::TimedOut { .. }) => Ok(()),
            _ => cx.join_sibling(&running.cx),
        };
        let output = output?;
        joined.map(|()| Submitted::Ready(output))
    }
}
