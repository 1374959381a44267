//! `timeout`: ends the wait for an operation after a time.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{Live, Submit},
    ops::settled::Settled,
    wake::timer::Sleep,
};

/// The steps of [`DeviceOp::timeout`](crate::ops::DeviceOp::timeout).
pub struct Timeout<S: Submit>(Live<State<S>>);

enum State<S: Submit> {
    Idle(S, Duration),
    Running(Box<Running<S>>),
}

struct Running<S: Submit> {
    steps: Settled<S>,
    /// A context on the same stream. The run does not wait for its work if the time is over first.
    cx: ExecutionContext,
    sleep: Sleep,
    after: Duration,
}

impl<S: Submit> Timeout<S> {
    pub(crate) const fn new(steps: S, after: Duration) -> Self {
        Self(Live::new(State::Idle(steps, after)))
    }
}

impl<S: Submit> Running<S> {
    fn new(steps: S, after: Duration, cx: &ExecutionContext, task: &Context<'_>) -> Result<Self> {
        cx.wait_by_wakers("timeout", task)?;
        let (cx, sleep) = (cx.sibling()?, Sleep::new(after));
        Ok(Self { steps: Settled::new(steps), cx, sleep, after })
    }

    /// Polls the steps before the clock: work that is complete when the poll comes late counts as complete.
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
        if let State::Idle(..) = self.0.get()?
            && let State::Idle(steps, after) = self.0.take()?
        {
            self.0.set(State::Running(Box::new(Running::new(steps, after, cx, task)?)));
        }
        let State::Running(running) = self.0.get()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let output = ready!(running.poll(task));
        let joined = match output.as_ref().map_err(Error::root) {
            Err(Error::TimedOut { .. }) => Ok(()),
            _ => cx.join_sibling(&running.cx),
        };
        self.0.end();
        Poll::Ready(output.and_then(|output| joined.map(|()| output)))
    }

    fn nested_boxes(&self) -> usize {
        match self.0.peek() {
            Some(State::Idle(steps, _)) => steps.nested_boxes(),
            Some(State::Running(running)) => running.steps.nested_boxes(),
            None => 0,
        }
    }
}
