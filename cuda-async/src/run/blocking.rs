//! Runs an operation on the calling thread, without an executor.

use std::task::{Context, Poll, Waker};

use cuda_core::{Error, Result, Stream};
use parking::Parker;

use crate::{
    context::{ExecutionContext, RunMode},
    op::{OpSpan, Submit, Submitted, poll_stored},
    run::blocked_task,
    runtime::defaults,
};

pub(crate) fn sync<S: Submit>(steps: S) -> Result<S::Output> {
    sync_on(steps, defaults::default_stream()?)
}

#[inline]
pub(crate) fn sync_on<S: Submit>(steps: S, stream: Stream) -> Result<S::Output> {
    blocked_task::report();
    let cx = ExecutionContext::root(stream, RunMode::Blocking);
    OpSpan::of_run(&cx).in_scope(|| run(steps, &cx))
}

#[inline]
fn run<S: Submit>(steps: S, cx: &ExecutionContext) -> Result<S::Output> {
    let task = &mut Context::from_waker(Waker::noop());
    let output = match cx.in_window(|| steps.submit(task, cx))? {
        Submitted::Ready(output) => output,
        Submitted::Pending(steps) => submit_blocking(steps, cx)?,
    };
    match cx.last() {
        None => {}
        Some(number) if cx.mode() == RunMode::Blocking => cx.waits().block_until(number)?,
        Some(number) => wait_for(number, cx)?,
    }
    Ok(output)
}

#[cold]
fn submit_blocking<S: Submit>(steps: S, cx: &ExecutionContext) -> Result<S::Output> {
    let mut steps = Some(steps);
    poll_until_ready(cx, |task| cx.in_window(|| poll_stored(&mut steps, task, cx)))
}

/// Waits for one submission by a waker. A blocking wait could also wait for later work on the stream, such as that of a
/// branch that the run has dropped.
#[cold]
fn wait_for(number: u64, cx: &ExecutionContext) -> Result<()> {
    let mut waiter = None;
    poll_until_ready(cx, |task| cx.waits().poll_submission(number, &mut waiter, task))
}

/// Polls until the result is ready. Between polls it blocks until the submission that a step named is complete, or
/// until the waker is called. The first submission had a no-op waker. So before its first poll this function waits
/// for a named submission only.
fn poll_until_ready<T>(
    cx: &ExecutionContext,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<Result<T>>,
) -> Result<T> {
    let parker = Parker::new();
    let waker = Waker::from(parker.unparker());
    cx.waits().block();
    loop {
        if let Poll::Ready(output) = poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        // A blocking wait on the device is faster than a wake by its completion thread.
        if !cx.waits().block() {
            parker.park();
        }
    }
}

/// Submits an operation without waiting. Returns [`Error::Busy`] if the stream has no credit, and
/// [`Error::NeedsHostData`] if a step has to wait.
pub(crate) fn submit_only<S: Submit>(steps: S, stream: Stream) -> Result<S::Output> {
    stream.credit().check()?;
    let cx = ExecutionContext::root(stream, RunMode::Detached);
    let task = &mut Context::from_waker(Waker::noop());
    match OpSpan::of_run(&cx).in_scope(|| cx.in_window(|| steps.submit(task, &cx)))? {
        Submitted::Ready(output) => Ok(output),
        Submitted::Pending(_) => Err(Error::needs_host_data("a step that waits")),
    }
}
