//! Waiting for a stream to have credit.

use std::task::{Context, Poll, ready};

use cuda_core::{Result, Stream, Waiter};

use crate::context::execution_context::{ExecutionContext, Run};

/// A step's wait for credit on its stream, if it has to wait: see [`ExecutionContext::poll_credit`]. Every step has one of
/// its own, since several that wait at the same time may share a context. A clone does not wait yet.
#[derive(Default)]
pub struct Credit(Option<Waiter>);

impl Credit {
    /// Nothing is waited for yet.
    pub const fn new() -> Self {
        Self(None)
    }

    /// Ready when half of what the stream had to run when this was first asked has run.
    fn poll(&mut self, stream: &Stream, task: &mut Context<'_>) -> Poll<Result<()>> {
        let mut waiter = match self.0.take() {
            Some(waiter) => waiter,
            None => stream.waiter(stream.submitted().saturating_sub(limit(stream) / 2))?,
        };
        let polled = waiter.poll(task);
        if polled.is_pending() {
            self.0 = Some(waiter);
        }
        polled
    }
}

impl Clone for Credit {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Credit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credit({})", if self.0.is_some() { "waits" } else { "does not wait" })
    }
}

impl ExecutionContext {
    /// Ready when the stream has fewer submissions in flight than its device allows: a driver blocks the thread that
    /// enqueues many more. Ready at once where nothing may wait.
    #[inline]
    pub fn poll_credit(&self, credit: &mut Credit, task: &mut Context<'_>) -> Poll<Result<()>> {
        let stream = self.stream()?;
        if stream.in_flight() < limit(stream) || self.run() == Run::Detached {
            return Poll::Ready(Ok(()));
        }
        wait_for_room(stream, credit, task)
    }
}

/// Submissions that the stream may have in flight.
fn limit(stream: &Stream) -> u64 {
    stream.device().submissions_in_flight()
}

/// Asks again once there was credit: others may have taken it.
#[cold]
fn wait_for_room(stream: &Stream, credit: &mut Credit, task: &mut Context<'_>) -> Poll<Result<()>> {
    while stream.in_flight() >= limit(stream) {
        ready!(credit.poll(stream, task))?;
    }
    Poll::Ready(Ok(()))
}
