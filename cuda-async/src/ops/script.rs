//! `script`: an async closure that runs operations, as one operation.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread::ThreadId,
};

use cuda_core::{Error, Result};
use parking_lot::Mutex;

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit},
};

/// Steps of [`script`].
pub struct Script<F, Fut>(State<F, Fut>);

enum State<F, Fut> {
    Idle(F),
    Runs(Pin<Box<Fut>>, ScriptContext),
    Ended,
}

/// Runs an async closure as one operation. In it `cx.run(op).await` runs operations one behind the other on the
/// stream of the whole: no wait between them but for host data, which is real when it is seen. Loops, `?`, and
/// futures of others may stand between them.
///
/// Both `async move |cx| { .. }` and `|cx| async move { .. }` will do. Running one allocates.
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
/// What the closure gives.
pub fn script<F, Fut, T>(f: F) -> Op<Script<F, Fut>>
where
    F: FnOnce(ScriptContext) -> Fut + Send,
    Fut: Future<Output = Result<T>> + Send,
    T: Send,
{
    Op::new(Script(State::Idle(f)))
}

/// Where a [`script`] runs its operations. Clones are the same one.
#[derive(Clone)]
pub struct ScriptContext(Arc<Mutex<Option<Polled>>>);

/// The script is being polled, by this thread, in this context.
struct Polled {
    by: ThreadId,
    cx: ExecutionContext,
}

impl ScriptContext {
    /// Runs an operation when it is awaited, behind what the script ran before.
    ///
    /// An operation that is run without this, by `op.await` or `op.sync()`, is a run of its own on the default policy:
    /// it is not behind what the script ran, but for the buffers that both use, and not part of the script. `sync`
    /// also blocks the thread that polls.
    ///
    /// # Errors
    /// What the operation says; [`Error::OutsideScript`] if it is awaited anywhere but in its script: in a task
    /// of its own, or after the script's end.
    pub fn run<O: IntoDeviceOp>(&self, op: O) -> ScriptRun<O::Steps> {
        ScriptRun { steps: op.into_op().into_steps(), script: self.clone() }
    }

    /// The context of the script, if it is this thread that polls it now.
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
    steps: S,
    script: ScriptContext,
}

// Steps are polled by plain reference and never refer to themselves.
impl<S> Unpin for ScriptRun<S> {}

impl<S: Submit> Future for ScriptRun<S> {
    type Output = Result<S::Output>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let cx = self.script.current()?;
        self.steps.poll_submit(task, &cx)
    }
}

/// Lets the script's own context be used for one poll.
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

    fn poll_submit(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<T>> {
        // Taken out, so that a script that panics is at its end.
        let (mut future, script) = match std::mem::replace(&mut self.0, State::Ended) {
            State::Idle(f) => {
                let script = ScriptContext(Arc::default());
                (Box::pin(f(script.clone())), script)
            }
            State::Runs(future, script) => (future, script),
            State::Ended => return Poll::Ready(Err(Error::AlreadyEnded)),
        };
        // Whatever it awaits has only the waker.
        cx.wait_by_wakers(task)?;
        let polled = {
            let _polling = Polling::new(&script, cx);
            future.as_mut().poll(task)
        };
        if polled.is_pending() {
            self.0 = State::Runs(future, script);
        }
        Poll::Ready(ready!(polled))
    }
}
