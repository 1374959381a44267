//! Allocations that wait for memory, where that was asked for.

use std::{
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use cuda_core::{Error, MemoryWaiter, Result, Stream};

use crate::{
    context::execution_context::{ExecutionContext, Run},
    wake::timer::Sleep,
};

/// The pause before an allocation is tried again though nobody said that memory came back; each is twice as long as
/// the one before, and none longer than [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A step's wait for memory, if it has to wait.
#[derive(Default)]
pub(crate) struct MemoryWait(Option<Box<Waits>>);

impl MemoryWait {
    pub(crate) const fn new() -> Self {
        Self(None)
    }
}

struct Waits {
    until: Option<Instant>,
    waiter: MemoryWaiter,
    sleep: Sleep,
    pause: Duration,
}

impl Waits {
    fn new(cx: &ExecutionContext, patience: Duration) -> Self {
        Self {
            until: Instant::now().checked_add(patience),
            waiter: cx.device().memory_waiter(),
            sleep: Sleep::new(Duration::ZERO),
            pause: FIRST_PAUSE,
        }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Ready when it is time to try again.
    fn poll(&mut self, task: &Context<'_>) -> Poll<Result<()>> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        self.sleep = Sleep::new(self.pause.min(left.unwrap_or(self.pause)));
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        self.sleep.poll(task)
    }
}

impl ExecutionContext {
    /// Enqueues an allocation. Where it is to wait for memory and there is not enough, pending until there is, or until
    /// that has taken too long.
    pub(crate) fn poll_allocation<R>(
        &self,
        wait: &mut MemoryWait,
        task: &Context<'_>,
        mut allocate: impl FnMut(&Stream) -> Result<R>,
    ) -> Poll<Result<R>> {
        loop {
            let error = match self.enqueue(&mut allocate) {
                Err(error) => error,
                Ok(allocated) => return Poll::Ready(Ok(allocated)),
            };
            let Some(patience) = self.patience_for(&error) else { return Poll::Ready(Err(error)) };
            let first = wait.0.is_none();
            if first {
                self.wait_by_wakers(task)?;
            }
            let waits = wait.0.get_or_insert_with(|| Box::new(Waits::new(self, patience)));
            if waits.is_over() {
                return Poll::Ready(Err(error));
            }
            waits.waiter.register(task);
            // What came back before is seen by another try.
            if !first {
                ready!(waits.poll(task))?;
            }
        }
    }

    /// How long to wait after this error, if at all.
    fn patience_for(&self, error: &Error) -> Option<Duration> {
        match error {
            // More than there is does not come back.
            Error::OutOfMemory { requested, total, .. } if requested > total && *total > 0 => None,
            Error::OutOfMemory { .. } if self.run() != Run::Detached => self.0.patience,
            _ => None,
        }
    }
}
