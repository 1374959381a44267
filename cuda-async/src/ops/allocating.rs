//! `in_pool`, `wait_for_memory`: run an operation in a context that allocates in another way.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use cuda_core::{Error, MemoryPool, Result};

use crate::{
    context::ExecutionContext,
    op::{Live, Submit},
};

/// A change to the allocations of an operation.
pub trait AllocationMode: Send {
    /// Returns a context on the same stream with this change.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the pool belongs to another device than the context.
    fn context(&self, cx: &ExecutionContext) -> Result<ExecutionContext>;
}

/// The allocations of [`DeviceOp::in_pool`](crate::ops::DeviceOp::in_pool): from this pool.
pub struct FromPool(pub(crate) MemoryPool);

impl AllocationMode for FromPool {
    fn context(&self, cx: &ExecutionContext) -> Result<ExecutionContext> {
        cx.with_pool(&self.0)
    }
}

/// The allocations of [`DeviceOp::wait_for_memory`](crate::ops::DeviceOp::wait_for_memory): they wait for at most this time
/// until memory is freed.
pub struct Waiting(pub(crate) Duration);

impl AllocationMode for Waiting {
    fn context(&self, cx: &ExecutionContext) -> Result<ExecutionContext> {
        cx.with_memory_wait(self.0)
    }
}

/// The steps of an operation that allocates by an [`AllocationMode`].
pub struct Allocating<S, A>(Live<State<S, A>>);

enum State<S, A> {
    Idle(S, A),
    Running(S, ExecutionContext),
}

impl<S, A> Allocating<S, A> {
    pub(crate) const fn new(steps: S, mode: A) -> Self {
        Self(Live::new(State::Idle(steps, mode)))
    }
}

impl<S: Submit, A: AllocationMode> Submit for Allocating<S, A> {
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        if let State::Idle(..) = self.0.get()?
            && let State::Idle(steps, mode) = self.0.take()?
        {
            self.0.set(State::Running(steps, mode.context(cx)?));
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
