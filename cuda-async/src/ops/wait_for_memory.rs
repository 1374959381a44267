//! `wait_for_memory`: lets allocations wait until memory is freed.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{Live, Submit},
};

/// The steps of [`DeviceOp::wait_for_memory`](crate::ops::DeviceOp::wait_for_memory).
pub struct WaitForMemory<S>(Live<State<S>>);

enum State<S> {
    Idle(S, Duration),
    Running(S, ExecutionContext),
}

impl<S> WaitForMemory<S> {
    pub(crate) const fn new(steps: S, max: Duration) -> Self {
        Self(Live::new(State::Idle(steps, max)))
    }
}

impl<S: Submit> Submit for WaitForMemory<S> {
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        if let State::Idle(..) = self.0.get()?
            && let State::Idle(steps, max) = self.0.take()?
        {
            self.0.set(State::Running(steps, cx.with_memory_wait(max)?));
        }
        let State::Running(steps, sibling) = self.0.get()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let output = ready!(steps.poll_submit(task, sibling));
        let joined = cx.join_sibling(sibling);
        self.0.end();
        Poll::Ready(output.and_then(|output| joined.map(|()| output)))
    }

    fn nested_boxes(&self) -> usize {
        match self.0.peek() {
            Some(State::Idle(steps, _) | State::Running(steps, _)) => steps.nested_boxes(),
            None => 0,
        }
    }
}
