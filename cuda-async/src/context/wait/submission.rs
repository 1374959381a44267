//! Waits for submissions on a context's stream.

use std::task::{Context, Poll, ready};

use cuda_core::{Element, Error, Landing, PinnedBuffer, Pinning, Result, Stream, Waiter};

use crate::context::{
    tree::{ExecutionContext, RunMode},
    wait::spin,
};

impl ExecutionContext {
    /// Ready when the bytes of a download have arrived.
    pub(crate) fn poll_landing<T: Element>(
        &self,
        landing: &mut Landing<T>,
        waiter: &mut Option<Waiter>,
        task: &mut Context<'_>,
    ) -> Poll<Result<PinnedBuffer<T>>> {
        if self.mode() == RunMode::Detached {
            return Poll::Ready(Err(Error::needs_host_data("to_host")));
        }
        ready!(self.poll_submission(landing.ticket().number, waiter, task))?;
        Poll::Ready(landing.try_take().unwrap_or(Err(Error::AlreadyEnded)))
    }

    /// Ready when submission `number` of this context's stream is complete. In a detached run, where steps may not
    /// wait, it is ready at once.
    pub(crate) fn poll_submission(
        &self,
        number: u64,
        waiter: &mut Option<Waiter>,
        task: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        self.poll_submission_on(self.stream()?, number, waiter, task)
    }

    /// As [`poll_submission`](Self::poll_submission), for a stream that is not this context's.
    pub(crate) fn poll_submission_on(
        &self,
        stream: &Stream,
        number: u64,
        waiter: &mut Option<Waiter>,
        task: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        match self.mode() {
            RunMode::Detached => Poll::Ready(Ok(())),
            RunMode::Blocking => {
                if self.known_shared().is_none() {
                    // The run is one sequence of steps, so no other step could continue in the meantime.
                    return Poll::Ready(stream.synchronize_to(number));
                }
                let known = stream.outcome(number).or_else(|| self.take_failure(stream, number));
                known.map_or_else(|| self.block_on(stream, number), Poll::Ready)
            }
            RunMode::Async => poll_waiter(stream, number, waiter, task),
        }
    }

    /// Ready with a pinned buffer of `len` elements, which holds bytes of an earlier copy. If a new block has to be
    /// pinned, a helper thread does so in an async run on a GPU. In a blocking or detached run the calling thread pins
    /// it.
    pub(crate) fn poll_pinned<T: Element>(
        &self,
        pinning: &mut Option<Pinning<T>>,
        len: usize,
        task: &mut Context<'_>,
    ) -> Poll<Result<PinnedBuffer<T>>> {
        if pinning.is_none()
            && let Some(idle) = self.device().idle_pinned(len)?
        {
            return Poll::Ready(Ok(idle));
        }
        let pending = pinning.get_or_insert_with(|| self.device().start_pinning(len));
        let polled = match self.mode_of_poll() {
            RunMode::Async => pending.poll(task),
            RunMode::Blocking | RunMode::Detached => Poll::Ready(pending.wait()),
        };
        if polled.is_ready() {
            *pinning = None;
        }
        polled
    }

    /// Yields to the executor during long host work. Returns whether the caller must return pending.
    pub(crate) fn yield_now(&self, task: &mut Context<'_>) -> bool {
        let yields = self.mode_of_poll() == RunMode::Async;
        if yields {
            task.waker().wake_by_ref();
        }
        yields
    }
}

/// Spins for a short time if that is worth it, and then registers a waker.
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
        // The waiter reports one submission. The handle also reports failures of its earlier ones.
        if let Some(outcome) = stream.outcome(number) {
            return Poll::Ready(outcome);
        }
    }
    polled
}
