//! `in_pool`: takes the memory of an operation from a pool.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, MemoryPool, Result};

use crate::{
    context::ExecutionContext,
    op::{Live, Submit},
};

/// The steps of [`DeviceOp::in_pool`](crate::ops::DeviceOp::in_pool).
pub struct InPool<S>(Live<State<S>>);

enum State<S> {
    Idle(S, MemoryPool),
    Running(S, ExecutionContext),
}

impl<S> InPool<S> {
    pub(crate) const fn new(steps: S, pool: MemoryPool) -> Self {
        Self(Live::new(State::Idle(steps, pool)))
    }
}

impl<S: Submit> Submit for InPool<S> {
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        if let State::Idle(..) = self.0.get()?
            && let State::Idle(steps, pool) = self.0.take()?
        {
            self.0.set(State::Running(steps, cx.with_pool(&pool)?));
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
