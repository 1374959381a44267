//! Waits of a run that blocks its thread.

use std::task::{Context, Poll};

use cuda_core::{Error, Result, Stream, Ticket};

use crate::{
    context::tree::{ExecutionContext, RunInFlight, RunMode},
    misuse,
    wake::timer::is_timer_thread,
};

impl ExecutionContext {
    /// Checks that steps may wait in this run.
    ///
    /// # Errors
    /// [`Error::NeedsHostData`] if they may not. It names `step`.
    pub(crate) fn may_wait(&self, step: &'static str) -> Result<()> {
        match self.first_mode() {
            RunMode::Detached => Err(Error::needs_host_data(step)),
            RunMode::Async | RunMode::Blocking => Ok(()),
        }
    }

    /// Makes all later waits of this run use wakers, also in a blocking run. A thread that blocks on one stream
    /// sees neither the progress of another stream nor the end of a timeout.
    ///
    /// # Errors
    /// [`Error::NeedsHostData`], which names `step`, if steps may not wait in this run. [`Error::Misuse`] inside the output
    /// function of the device, and inside a waker: the timer thread and the thread that delivers a device's notices could
    /// not wake themselves.
    pub(crate) fn wait_by_wakers(&self, step: &'static str, task: &Context<'_>) -> Result<()> {
        self.may_wait(step)?;
        if self.mode() == RunMode::Blocking {
            self.device().check_may_wait()?;
            if is_timer_thread() || self.device().delivers_here() {
                return Err(misuse::blocks_in_waker());
            }
            self.shared().root_data().by_wakers.get_or_init(RunInFlight::new);
            // Steps that were polled before this have registered no waker.
            task.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Stores the submission that the blocking thread waits for.
    pub(super) fn block_on<T>(&self, stream: &Stream, number: u64) -> Poll<Result<T>> {
        self.shared().root_data().blocked.lock().on = Some((stream.clone(), number));
        Poll::Pending
    }

    /// Blocks until submission `number` of this context is complete.
    #[inline]
    pub(crate) fn block_until(&self, number: u64) -> Result<()> {
        self.stream()?.synchronize_to(number)
    }

    /// Blocks for the submission that [`block_on`](Self::block_on) named. Returns false, without blocking, if there is
    /// none or if the run waits by wakers.
    ///
    /// If the wait fails, the step that waits gets the error and decides what follows.
    pub(crate) fn block(&self) -> bool {
        let Some(shared) = self.known_shared() else { return false };
        let root = shared.root_data();
        let blocked_on = root.blocked.lock().on.take();
        let Some((stream, number)) = blocked_on.filter(|_| self.mode() == RunMode::Blocking) else {
            return false;
        };
        if let Err(error) = stream.synchronize_to(number) {
            let ticket = Ticket { stream: stream.id(), number };
            root.blocked.lock().failed = Some((ticket, error));
        }
        true
    }

    /// Takes the error of a failed wait for this submission.
    pub(super) fn take_failure(&self, stream: &Stream, number: u64) -> Option<Result<()>> {
        let mut blocked = self.known_shared()?.root_data().blocked.lock();
        let ticket = Ticket { stream: stream.id(), number };
        let (_, error) = blocked.failed.take_if(|(failed, _)| *failed == ticket)?;
        Some(Err(error))
    }
}
