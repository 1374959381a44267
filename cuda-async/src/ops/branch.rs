//! One of several operations that run at the same time.

use std::task::{Context, Poll};

use cuda_core::{Error, Result};

use crate::{context::ExecutionContext, op::Submit};

/// Steps that run beside others, and their output until all are submitted.
pub struct Branch<S: Submit>(State<S, S::Output>);

enum State<S, T> {
    Runs(S),
    Submitted(T),
    Ended,
}

impl<S: Submit> Branch<S> {
    pub(crate) const fn new(steps: S) -> Self {
        Self(State::Runs(steps))
    }

    /// Ready when it is submitted. May be polled again after that.
    pub(crate) fn poll(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<()>> {
        let State::Runs(steps) = &mut self.0 else { return Poll::Ready(Ok(())) };
        match steps.poll_submit(task, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(output) => {
                self.0 = State::Ended;
                self.0 = State::Submitted(output?);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// The output of a branch that is submitted.
    pub(crate) fn take(&mut self) -> Result<S::Output> {
        match std::mem::replace(&mut self.0, State::Ended) {
            State::Submitted(output) => Ok(output),
            _ => Err(Error::AlreadyEnded),
        }
    }
}

/// Whether any of the branches wait, of which this many do. A thread that blocks waits for one stream at a time:
/// with more than one branch to wait for it would follow one to its end before it goes on with the others, so it
/// is woken instead.
pub(crate) fn still_waiting(
    waiting: usize,
    task: &Context<'_>,
    cx: &ExecutionContext,
) -> Result<bool> {
    if waiting > 1 && cx.may_wait().is_ok() {
        cx.wait_by_wakers(task)?;
    }
    Ok(waiting > 0)
}

/// The contexts of branches, made when they are first polled.
#[derive(Default)]
pub(crate) struct Fork(Vec<ExecutionContext>);

impl Fork {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The context of each of `count` branches.
    pub(crate) fn contexts(
        &mut self,
        cx: &ExecutionContext,
        count: usize,
    ) -> Result<&[ExecutionContext]> {
        if self.0.is_empty() {
            self.0 = cx.fork(count)?;
        }
        Ok(&self.0)
    }

    /// Orders what comes next after every branch, also where one failed: what it had submitted is part of the
    /// operation.
    pub(crate) fn join(&mut self, cx: &ExecutionContext) -> Result<()> {
        cx.join(&std::mem::take(&mut self.0))
    }
}
