//! `script`: runs an async closure as one operation.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread::ThreadId,
};

use cuda_core::{Error, Result};
use parking_lot::Mutex;

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit, Submitted, poll_stored},
};

/// The steps of [`script`].
pub struct Script<F, Fut>(State<F, Fut>);

enum State<F, Fut> {
    Idle(F),
    Running(Pin<Box<Fut>>, ScriptContext),
}

/// Runs an async closure as one operation. In the closure, `cx.run(op).await` runs operations in sequence on the stream
/// of the script. It waits only for host data, so host data is always complete. The closure may contain loops, `?`,
/// and other futures.
///
/// Both `async move |cx| { .. }` and `|cx| async move { .. }` are accepted. Running a script allocates.
///
/// ```
/// use cuda_async::{prelude::*, script};
/// let op = script(async |cx| {
///     let mut x = cx.run(h2d(vec![1u32; 4])).await?;
///     let mut turns = 0;
///     loop {
///         let host = cx.run(to_host(x)).await?;
///         if host[0] > 100 {
///             return Ok((host[0], turns));
///         }
///         x = cx.run(h2d(host.iter().map(|n| n * 3).collect::<Vec<_>>())).await?;
///         turns += 1;
///     }
/// });
/// assert_eq!(op.sync()?, (243, 5));
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// The error that the closure returns; [`Error::NeedsHostData`](crate::Error::NeedsHostData) in
/// [`async_on`](crate::DeviceOp::async_on), where steps may not wait.
pub fn script<F, Fut, T>(f: F) -> Op<Script<F, Fut>>
where
    F: FnOnce(ScriptContext) -> Fut + Send,
    Fut: Future<Output = Result<T>> + Send,
    T: Send,
{
    Op::new(Script(State::Idle(f)))
}

/// The handle through which a [`script`] runs its operations. Clones refer to the same script.
#[derive(Clone)]
pub struct ScriptContext(Arc<Mutex<Option<Polled>>>);

/// Present while a thread polls the script.
struct Polled {
    by: ThreadId,
    cx: ExecutionContext,
}

impl ScriptContext {
    /// Runs an operation when the future is awaited, after the operations that the script ran before.
    ///
    /// An operation that is run in another way, by `op.await` or `op.sync()`, is a separate run on the default policy.
    /// It is not part of the script, and only the buffers that both use order it after the script's work. `sync` also
    /// blocks the polling thread.
    ///
    /// # Errors
    /// The error of the operation; [`Error::OutsideScript`] if the future is awaited outside of its script: in a task
    /// of its own, or after the end of the script.
    pub fn run<O: IntoDeviceOp>(&self, op: O) -> ScriptRun<O::Steps> {
        ScriptRun { steps: Some(op.into_op().into_steps()), script: self.clone() }
    }

    /// Returns the context of the script if this thread is polling the script.
    fn current(&self) -> Result<ExecutionContext> {
        let polled = self.0.lock();
        let here = polled.as_ref().filter(|polled| polled.by == std::thread::current().id());
        here.map(|polled| polled.cx.clone()).ok_or(Error::OutsideScript)
    }

    fn set(&self, polled: Option<Polled>) {
        let before = std::mem::replace(&mut *self.0.lock(), polled);
        drop(before);
    }
}

impl std::fmt::Debug for ScriptContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptContext")
    }
}

/// The future of [`ScriptContext::run`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct ScriptRun<S> {
    steps: Option<S>,
    script: ScriptContext,
}

// Steps are moved while they are submitted, so they are not pinned.
impl<S> Unpin for ScriptRun<S> {}

impl<S: Submit> Future for ScriptRun<S> {
    type Output = Result<S::Output>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let cx = self.script.current()?;
        poll_stored(&mut self.steps, task, &cx)
    }
}

/// Lends the run's context to the script for one poll.
struct Polling<'a>(&'a ScriptContext);

impl<'a> Polling<'a> {
    fn new(script: &'a ScriptContext, cx: &ExecutionContext) -> Self {
        script.set(Some(Polled { by: std::thread::current().id(), cx: cx.clone() }));
        Self(script)
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

impl<F, Fut, T> Submit for Script<F, Fut>
where
    F: FnOnce(ScriptContext) -> Fut + Send,
    Fut: Future<Output = Result<T>> + Send,
    T: Send,
{
    type Output = T;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let (mut future, script) = match self.0 {
            State::Idle(f) => {
                let script = ScriptContext(Arc::default());
                (Box::pin(f(script.clone())), script)
            }
            State::Running(future, script) => (future, script),
        };
        // The futures that the script awaits use wakers. A script that is pending while it is recorded is an error.
        if !cx.is_recording() {
            cx.waits().wait_by_wakers("script", task)?;
        }
        let polled = {
            let _polling = Polling::new(&script, cx);
            future.as_mut().poll(task)
        };
        match polled {
            Poll::Ready(output) => output.map(Submitted::Ready),
            Poll::Pending if cx.is_recording() => Err(Error::needs_host_data("script")),
            Poll::Pending => Ok(Submitted::Pending(Self(State::Running(future, script)))),
        }
    }
}
