//! `in_pool`, `wait_for_memory`: run an operation in a context that allocates in another way.

use std::{task::Context, time::Duration};

use cuda_core::{MemoryPool, Result};

use crate::{
    context::ExecutionContext,
    op::{Submit, Submitted},
};

/// A change to the allocations of an operation.
pub trait AllocationMode: Send {
    /// Returns a context on the same stream with this change.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice) if the pool belongs to another device than the context.
    fn context(&self, cx: &ExecutionContext) -> Result<ExecutionContext>;
}

/// The allocations of [`DeviceOp::in_pool`](crate::ops::DeviceOp::in_pool): from this pool.
pub struct FromPool(pub(crate) MemoryPool);

impl AllocationMode for FromPool {
    fn context(&self, cx: &ExecutionContext) -> Result<ExecutionContext> {
        cx.with_pool(&self.0)
    }
}

/// The allocations of [`DeviceOp::wait_for_memory`](crate::ops::DeviceOp::wait_for_memory): they wait for at most this
/// time until memory is freed.
pub struct Waiting(pub(crate) Duration);

impl AllocationMode for Waiting {
    fn context(&self, cx: &ExecutionContext) -> Result<ExecutionContext> {
        cx.with_memory_wait(self.0)
    }
}

/// The steps of an operation that allocates by an [`AllocationMode`].
pub struct Allocating<S, A>(State<S, A>);

enum State<S, A> {
    Idle(S, A),
    Running(S, ExecutionContext),
}

impl<S, A> Allocating<S, A> {
    pub(crate) const fn new(steps: S, mode: A) -> Self {
        Self(State::Idle(steps, mode))
    }
}

impl<S: Submit, A: AllocationMode> Submit for Allocating<S, A> {
    type Output = S::Output;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let (steps, sibling) = match self.0 {
            State::Idle(steps, mode) => (steps, mode.context(cx)?),
            State::Running(steps, sibling) => (steps, sibling),
        };
        let output = match steps.submit(task, &sibling) {
            Ok(Submitted::Pending(steps)) => {
                return Ok(Submitted::Pending(Self(State::Running(steps, sibling))));
            }
            Ok(Submitted::Ready(output)) => Ok(output),
            Err(error) => Err(error),
        };
        let joined = cx.join_sibling(&sibling);
        let output = output?;
        joined.map(|()| Submitted::Ready(output))
    }
}
