//! Copies of large host memory on a thread of their own, for async code.

use std::{
    sync::OnceLock,
    task::{Context, Poll},
};

use cuda_core::{
    Error, Result,
    internals::sync::{HelperThread, Receiver},
};

use crate::context::{ExecutionContext, RunMode};

/// A copy on the thread that makes large copies. Dropping it does not stop the copy.
pub struct LargeCopy<T>(Receiver<T>);

impl<T: Send + 'static> LargeCopy<T> {
    /// Starts a copy. The process has one thread for them: each copy uses several threads itself.
    ///
    /// # Errors
    /// [`Error::Host`] if the thread cannot be started.
    pub fn start(copy: impl FnOnce() -> T + Send + 'static) -> Result<Self> {
        static COPIER: OnceLock<HelperThread> = OnceLock::new();
        let copier = COPIER.get_or_init(|| HelperThread::new("cuda-copy"));
        let started = copier.start(copy);
        let what = "failed to start the thread that copies host memory";
        started.map(Self).map_err(|error| Error::host(what, &error))
    }

    /// Ready with the result of the copy in `copying`, which is taken out. A run that only submits waits for it here,
    /// since it never polls again.
    ///
    /// # Errors
    /// [`Error::Host`] if the copy panicked; [`Error::AlreadyEnded`] if there is none.
    pub fn poll(
        copying: &mut Option<Self>,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<T>> {
        let Some(Self(running)) = copying else { return Poll::Ready(Err(Error::AlreadyEnded)) };
        let polled = match cx.mode_of_poll() {
            RunMode::Async | RunMode::Blocking => running.poll(task),
            RunMode::Detached => Poll::Ready(running.wait()),
        };
        if polled.is_ready() {
            *copying = None;
        }
        polled.map(|result| result.ok_or_else(panicked))
    }
}

#[cold]
fn panicked() -> Error {
    let detail = "it panicked; a `HostSource` of your own may be the cause".into();
    Error::Host { what: "a copy of host memory".into(), detail }
}
