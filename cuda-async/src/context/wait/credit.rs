//! `Credit`: waits until a stream accepts more submissions.

use std::task::{Context, Poll, ready};

use cuda_core::{Result, Stream, Waiter};

use crate::context::tree::{ExecutionContext, RunMode};

/// A step's wait for credit, used by [`ExecutionContext::poll_credit`]. Each step owns one, because several waiting
/// steps may share a context. A clone starts without a wait.
#[derive(Default)]
pub struct Credit(Option<Box<Waiter>>);

impl Credit {
    /// Creates a wait that has not started.
    #[inline]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Ready when at most half of each limit of the stream is in flight. Work that is submitted after the first poll
    /// does not count.
    fn poll(&mut self, stream: &Stream, task: &mut Context<'_>) -> Poll<Result<()>> {
        let mut waiter = match self.0.take() {
            Some(waiter) => waiter,
            None => Box::new(stream.credit_waiter()?),
        };
        if waiter.poll(task).is_pending() {
            self.0 = Some(waiter);
            return Poll::Pending;
        }
        // The outcome is that of one submission, which may belong to another operation.
        Poll::Ready(stream.check_not_lost())
    }
}

impl Drop for Credit {
    /// Drops the waiter if there is one. That code is not inlined, so a step without a waiter only makes the check.
    #[inline]
    fn drop(&mut self) {
        if let Some(waiter) = self.0.take() {
            drop_waiter(waiter);
        }
    }
}

#[cold]
#[inline(never)]
fn drop_waiter(waiter: Box<Waiter>) {
    drop(waiter);
}

impl Clone for Credit {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Credit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credit({})", if self.0.is_some() { "waiting" } else { "not waiting" })
    }
}

impl ExecutionContext {
    /// Polls for [credit](cuda_core::Stream::has_credit) to submit more work to the stream. There is credit while fewer
    /// submissions, and fewer bytes of host memory, are in flight than the device allows. Always ready in
    /// [`async_on`](crate::DeviceOp::async_on), which checks the credit before the first step, and in recordings: steps
    /// may not wait there.
    #[inline]
    pub fn poll_credit(&self, credit: &mut Credit, task: &mut Context<'_>) -> Poll<Result<()>> {
        let stream = self.stream()?;
        if stream.has_credit() {
            return Poll::Ready(Ok(()));
        }
        match self.mode() {
            RunMode::Detached => Poll::Ready(Ok(())),
            // Blocks without a waker, because this thread may deliver the wakes.
            RunMode::Blocking => Poll::Ready(stream.wait_for_credit()),
            RunMode::Async => wait_for_credit(stream, credit, task),
        }
    }

    /// Whether the stream is known to have credit.
    #[inline]
    pub(crate) fn has_credit(&self) -> bool {
        self.known_stream().is_some_and(Stream::has_credit)
    }
}

/// Checks again after each wait, because another step may have taken the credit.
#[cold]
fn wait_for_credit(
    stream: &Stream,
    credit: &mut Credit,
    task: &mut Context<'_>,
) -> Poll<Result<()>> {
    while !stream.has_credit() {
        ready!(credit.poll(stream, task))?;
    }
    Poll::Ready(Ok(()))
}
