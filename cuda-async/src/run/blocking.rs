//! Runs an operation on the calling thread, without an executor.
//!
//! # Blocking runs inside async tasks
//! A task of tokio that blocks stops every other task of its thread, and can wait for one of them forever. A
//! thread-local variable of tokio states whether a thread runs tasks. Debug builds report such a run with a log line.
//! The run does the same on every thread. Other executors have no such query.

use std::{
    sync::Once,
    task::{Context, Poll, Waker},
};

use cuda_core::{Error, Result, Stream};
use parking::Parker;

use crate::{
    context::{ExecutionContext, RunMode},
    op::{OpSpan, Submit, Submitted, poll_stored},
    runtime::defaults,
};

pub(crate) fn sync<S: Submit>(steps: S) -> Result<S::Output> {
    sync_on(steps, defaults::default_stream()?)
}

#[inline]
pub(crate) fn sync_on<S: Submit>(steps: S, stream: Stream) -> Result<S::Output> {
    report_blocked_task();
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
    poll_until_ready(cx, |task| {
        let polled = cx.in_window(|| match poll_stored(&mut steps, task, cx) {
            Poll::Ready(output) => output.map(Some),
            Poll::Pending => Ok(None),
        });
        polled.transpose().map_or(Poll::Pending, Poll::Ready)
    })
}

/// Waits for one submission by a waker. A blocking wait could also wait for later work on the stream, such as that of a
/// branch that the run has dropped.
#[cold]
fn wait_for(number: u64, cx: &ExecutionContext) -> Result<()> {
    let mut waiter = None;
    poll_until_ready(cx, |task| cx.waits().poll_submission(number, &mut waiter, task))
}

/// Polls until the result is ready. Between polls it blocks until the submission that a step named is complete, or
/// until the waker is called. The caller has submitted the steps with a no-op waker, so no wake can come before the
/// first poll here: until then this function waits for such a submission only.
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

static REPORTED: Once = Once::new();

/// Logs a warning if the calling thread runs tasks of tokio, once in the process. Does nothing in release builds.
#[inline]
pub(super) fn report_blocked_task() {
    if cfg!(debug_assertions) {
        report_once(is_worker(), &REPORTED);
    }
}

/// Whether the calling thread is one on which tokio runs tasks. Threads of `spawn_blocking` are not.
#[cfg(not(loom))]
fn is_worker() -> bool {
    tokio::runtime::worker_index().is_some()
}

#[cfg(loom)]
fn is_worker() -> bool {
    false
}

#[cold]
fn report_once(is_worker: bool, reported: &Once) {
    if is_worker {
        reported.call_once(|| {
            tracing::warn!(
                "a blocking run (`sync`, `sync_on`, `DeviceFuture::wait`) in an async task stops the other tasks of its \
                 thread; use `.await`, or `tokio::task::spawn_blocking` (inside of `block_in_place` it stops none)"
            );
        });
    }
}

#[cfg(all(test, feature = "cpu", not(loom)))]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use tokio::runtime::Builder;
    use tracing::Dispatch;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[test]
    fn threads_that_run_tasks_are_workers() {
        assert!(!is_worker());
        let on_pool = || tokio::task::spawn_blocking(is_worker);
        let current = Builder::new_current_thread().build().unwrap();
        let found = current.block_on(async { (is_worker(), on_pool().await.unwrap()) });
        assert_eq!(found, (true, false));
        let threads = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let task = tokio::spawn;
        let found = threads.block_on(async {
            (task(async { is_worker() }).await.unwrap(), on_pool().await.unwrap())
        });
        assert_eq!(found, (true, false));
    }

    /// Keeps the text of a log.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn blocking_run_in_a_task_is_reported_once() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
        let reported = Once::new();
        tracing::dispatcher::with_default(&Dispatch::new(subscriber), || {
            report_once(false, &reported);
            assert!(log.0.lock().unwrap().is_empty());
            report_once(true, &reported);
            report_once(true, &reported);
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("WARN").count(), 1, "{text}");
        assert!(text.contains("use `.await`, or `tokio::task::spawn_blocking`"), "{text}");
    }
}
