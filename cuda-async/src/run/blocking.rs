//! Running an operation on the calling thread, without an executor.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
};

use cuda_core::{Error, Result, Stream};

use crate::{
    context::{ExecutionContext, Run},
    op::Submit,
    runtime::defaults,
};

pub(crate) fn sync<S: Submit>(steps: S) -> Result<S::Output> {
    sync_on(steps, &defaults::default_stream()?)
}

pub(crate) fn sync_on<S: Submit>(mut steps: S, stream: &Stream) -> Result<S::Output> {
    let cx = ExecutionContext::root(stream.clone(), Run::Blocking);
    let output = match steps.poll_submit(&mut Context::from_waker(Waker::noop()), &cx) {
        Poll::Ready(output) => output?,
        Poll::Pending => poll_until_ready(&cx, |task| steps.poll_submit(task, &cx))?,
    };
    drop(steps);
    match cx.last() {
        None => {}
        Some(number) if cx.run() == Run::Blocking => cx.block_until(number)?,
        // There may be something behind it that was given up.
        Some(number) => {
            let mut waiter = None;
            poll_until_ready(&cx, |task| cx.poll_submission(number, &mut waiter, task))?;
        }
    }
    Ok(output)
}

/// Polls, and blocks for what is waited for, until it is ready. What was polled before is polled again first,
/// with a waker.
fn poll_until_ready<T>(
    cx: &ExecutionContext,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<Result<T>>,
) -> Result<T> {
    let parker = Arc::new(Parker { thread: std::thread::current(), woken: AtomicBool::new(true) });
    let waker = Waker::from(parker.clone());
    loop {
        // The device can be asked directly, which is quicker than to be woken by it.
        if !cx.synchronize() {
            parker.park();
        }
        if let Poll::Ready(output) = poll(&mut Context::from_waker(&waker)) {
            return output;
        }
    }
}

/// Polls once; whoever has to wait is told so.
pub(crate) fn submit_only<S: Submit>(mut steps: S, stream: &Stream) -> Result<S::Output> {
    let cx = ExecutionContext::root(stream.clone(), Run::Detached);
    match steps.poll_submit(&mut Context::from_waker(Waker::noop()), &cx) {
        Poll::Ready(output) => output,
        Poll::Pending => Err(Error::NeedsHostData),
    }
}

struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    fn park(&self) {
        while !self.woken.swap(false, Ordering::AcqRel) {
            std::thread::park();
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
