//! Waiting for submissions of a context's stream.

use std::task::{Context, Poll, ready};

use cuda_core::{Element, Error, Landing, PinnedBuffer, Result, Stream, Waiter};

use crate::context::{
    execution_context::{ExecutionContext, Run},
    spin,
};

impl ExecutionContext {
    /// Ready when a download has landed.
    pub(crate) fn poll_landing<T: Element>(
        &self,
        landing: &mut Landing<T>,
        waiter: &mut Option<Waiter>,
        task: &mut Context<'_>,
    ) -> Poll<Result<PinnedBuffer<T>>> {
        if self.run() == Run::Detached {
            return Poll::Ready(Err(Error::NeedsHostData));
        }
        ready!(self.poll_submission(landing.ticket().number, waiter, task))?;
        Poll::Ready(landing.try_take().unwrap_or(Err(Error::AlreadyEnded)))
    }

    /// Ready when submission `number` of this context's stream has run; at once where nothing may wait.
    pub(crate) fn poll_submission(
        &self,
        number: u64,
        waiter: &mut Option<Waiter>,
        task: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        let stream = self.stream()?;
        match self.run() {
            Run::Detached => Poll::Ready(Ok(())),
            Run::Blocking => {
                let known = stream.outcome(number).or_else(|| self.take_failure(stream, number));
                known.map_or_else(|| self.block_on(stream, number), Poll::Ready)
            }
            Run::Async => poll_waiter(stream, number, waiter, task),
        }
    }

    /// Lets the executor do something else before a long stretch of host work goes on; whether it did.
    pub(crate) fn yield_now(&self, task: &mut Context<'_>) -> bool {
        if self.run() == Run::Async {
            task.waker().wake_by_ref();
        }
        self.run() == Run::Async
    }
}

/// A short spin if that is worth it, then a waker.
fn poll_waiter(
    stream: &Stream,
    number: u64,
    waiter: &mut Option<Waiter>,
    task: &mut Context<'_>,
) -> Poll<Result<()>> {
    if waiter.is_none() {
        if let Some(outcome) = spin::outcome(stream, number) {
            return Poll::Ready(outcome);
        }
        *waiter = Some(stream.waiter(number)?);
    }
    let polled = waiter.as_mut().map_or(Poll::Ready(Ok(())), |waiter| waiter.poll(task));
    if polled.is_ready() {
        *waiter = None;
        // The waiter knows its own submission only.
        if let Some(outcome) = stream.outcome(number) {
            return Poll::Ready(outcome);
        }
    }
    polled
}
