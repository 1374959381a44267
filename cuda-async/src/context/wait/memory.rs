//! Allocations that wait for memory.

use std::{
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use cuda_core::{Error, MemoryWaiter, Result, Stream};

use crate::{
    context::tree::{ExecutionContext, RunMode},
    wake::timer::Sleep,
};

/// The first pause between two tries of an allocation, if no wake comes earlier. Each further pause is twice as long,
/// and at most [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The wait of one step for memory. It allocates only when the step has to wait.
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
    fn new(cx: &ExecutionContext, max: Duration) -> Self {
        Self {
            until: Instant::now().checked_add(max),
            waiter: cx.device().memory_waiter(),
            sleep: Sleep::new(Duration::ZERO),
            pause: FIRST_PAUSE,
        }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Ready when the allocation should be tried again.
    fn poll(&mut self, task: &Context<'_>) -> Poll<Result<()>> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        self.sleep = Sleep::new(self.pause.min(left.unwrap_or(self.pause)));
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        self.sleep.poll(task)
    }
}

impl ExecutionContext {
    /// Enqueues an allocation. If this context waits for memory and the device has too little, the allocation is
    /// pending until it succeeds or the time is over.
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
            let Some(max) = self.wait_for(&error) else { return Poll::Ready(Err(error)) };
            let first = wait.0.is_none();
            if first {
                self.wait_by_wakers("wait_for_memory", task)?;
            }
            let waits = wait.0.get_or_insert_with(|| Box::new(Waits::new(self, max)));
            if waits.is_over() {
                return Poll::Ready(Err(error));
            }
            waits.waiter.register(task);
            // After the first registration the loop tries again: memory may have been freed just before it.
            if !first {
                ready!(waits.poll(task))?;
            }
        }
    }

    /// The time for which to wait after this error; `None` if this context does not wait, or if waiting cannot help.
    fn wait_for(&self, error: &Error) -> Option<Duration> {
        match error {
            // A request larger than the device never succeeds.
            Error::OutOfMemory { requested, total, .. } if requested > total && *total > 0 => None,
            Error::OutOfMemory { .. } if self.mode() != RunMode::Detached => self.memory_wait(),
            _ => None,
        }
    }
}
