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

use crate::{ExecutionContext, Submit, context::Run, defaults};

pub(crate) fn sync<S: Submit>(steps: S) -> Result<S::Output> {
    sync_on(steps, &defaults::place()?)
}

pub(crate) fn sync_on<S: Submit>(mut steps: S, stream: &Stream) -> Result<S::Output> {
    let cx = ExecutionContext::root(stream.clone(), Run::Blocking);
    let output = match steps.poll_submit(&mut Context::from_waker(Waker::noop()), &cx) {
        Poll::Ready(output) => output?,
        Poll::Pending => wait_for(steps, &cx)?,
    };
    if cx.last().is_some() {
        stream.synchronize()?;
    }
    Ok(output)
}

/// Goes on with steps that did not submit everything at once. They are asked again first, with a waker.
fn wait_for<S: Submit>(mut steps: S, cx: &ExecutionContext) -> Result<S::Output> {
    let parker = Arc::new(Parker { thread: std::thread::current(), woken: AtomicBool::new(true) });
    let waker = Waker::from(parker.clone());
    loop {
        match cx.take_blocked_on() {
            // The device can be asked directly, which is quicker than to be woken by it.
            Some(stream) => stream.synchronize()?,
            None => parker.park(),
        }
        if let Poll::Ready(output) = steps.poll_submit(&mut Context::from_waker(&waker), cx) {
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
