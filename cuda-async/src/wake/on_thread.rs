//! `OnThread`: a call that blocks, as a future.

use std::{
    borrow::Cow,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    thread,
};

use cuda_core::{
    Error, Result,
    internals::sync::{Receiver, one_shot},
};

/// The result of a function that runs on a thread of its own. The function runs to its end also if this is dropped.
pub(crate) struct OnThread<T> {
    result: Receiver<Result<T>>,
    /// The attempt, in words.
    what: Cow<'static, str>,
}

impl<T: Send + 'static> OnThread<T> {
    /// Starts a thread with this name. `what` is the attempt, for errors.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub(crate) fn start(
        name: &str,
        what: impl Into<Cow<'static, str>>,
        run: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let what = what.into();
        let (sender, result) = one_shot();
        let started = thread::Builder::new().name(name.into()).spawn(move || sender.send(run()));
        match started {
            Ok(_) => Ok(Self { result, what }),
            Err(error) => Err(Error::host(format!("{what}: failed to start a thread"), &error)),
        }
    }
}

impl<T> Future for OnThread<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<T>> {
        let this = &mut *self;
        // Without a value, the thread has panicked.
        let panicked = || Err(Error::Panicked { what: this.what.clone() });
        this.result.poll(task).map(|result| result.unwrap_or_else(panicked))
    }
}
