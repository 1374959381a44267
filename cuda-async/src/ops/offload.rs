//! `Offload`: runs a blocking closure on a helper thread.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Poll},
    thread,
};

use cuda_core::{
    Error, Result,
    sync::{WakerSet, discard_panic},
};
use parking_lot::Mutex;

use crate::{context::ExecutionContext, op::Submit};

/// Steps that run a blocking closure, for rare requests that a driver answers slowly.
pub(crate) struct Offload<F, T> {
    /// Present until the thread is started.
    work: Option<F>,
    shared: Arc<Mutex<Shared<T>>>,
}

struct Shared<T> {
    result: Option<Result<T>>,
    wakers: WakerSet<()>,
}

impl<F, T> Offload<F, T>
where
    F: FnOnce() -> Result<T> + Send + 'static,
    T: Send + 'static,
{
    pub(crate) fn new(work: F) -> Self {
        let shared = Arc::new(Mutex::new(Shared { result: None, wakers: WakerSet::new() }));
        Self { work: Some(work), shared }
    }

    fn start(&self, work: F) -> Result<()> {
        let shared = self.shared.clone();
        let run = move || {
            let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
                discard_panic(payload);
                Err(host("it panicked, which is a bug: please report it".into()))
            });
            let mut shared = shared.lock();
            shared.result = Some(result);
            let wakers = shared.wakers.take_all();
            drop(shared);
            wakers.wake();
        };
        let spawned = thread::Builder::new().name("cuda-helper".into()).spawn(run);
        spawned.map(drop).map_err(|error| host(error.to_string()))
    }
}

fn host(detail: String) -> Error {
    Error::Host { what: "a helper thread".into(), detail }
}

impl<F, T> Submit for Offload<F, T>
where
    F: FnOnce() -> Result<T> + Send + 'static,
    T: Send + 'static,
{
    type Output = T;

    fn poll_submit(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<T>> {
        cx.may_wait()?;
        if let Some(work) = self.work.take() {
            self.start(work)?;
        }
        let waker = task.waker().clone();
        let mut shared = self.shared.lock();
        let result = shared.result.take();
        let previous = shared.wakers.insert((), waker);
        drop(shared);
        drop(previous);
        result.map_or(Poll::Pending, Poll::Ready)
    }
}
