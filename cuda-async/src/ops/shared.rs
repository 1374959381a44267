//! `shared`: runs an operation once and gives its output to all clones.
//!
//! # States
//! - *Waiting*: no clone polls the steps. If they were polled before, they have a context.
//! - *Running*: one clone polls the steps. The others have stored their wakers and wait.
//! - *Ended*: the result is available to all clones.
//!
//! The steps run in a context of their own, so any run can poll them. A wake of the steps wakes every clone that
//! waits. A clone that is dropped while it waits wakes the others, so that one of them continues. If a wake comes while
//! a clone polls the steps, the clones are woken again after that poll, because the polling clone may never return.

use std::{
    sync::Arc,
    task::{Context, Waker},
};

use cuda_core::{Error, Misuse, Result, Stream};

use crate::{
    context::{ExecutionContext, PollerGuard},
    op::{Submit, Submitted},
    ops::once::{Member, Polled},
};

/// The steps of [`DeviceOp::shared`](crate::ops::DeviceOp::shared). All clones share one run.
pub struct Shared<S: Submit>(Member<Work<S>, Made<S::Output>>);

/// The steps, and their context once they have been polled.
type Work<S> = (S, Option<Box<ExecutionContext>>);

/// The result, and a stream handle that counts the submissions which made it. Later work of a run is ordered after
/// them.
struct Made<T> {
    result: Result<Arc<T>>,
    after: Option<Arc<Stream>>,
}

impl<S: Submit> Shared<S> {
    pub(crate) fn new(steps: S) -> Self {
        let panicked = || {
            let error = Error::Panicked { what: "a `shared` operation".into() };
            Made { result: Err(error), after: None }
        };
        Self(Member::new((steps, None), panicked))
    }
}

impl<S: Submit<Output: Sync>> Submit for Shared<S> {
    type Output = Arc<S::Output>;

    fn submit(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let id = self.0.id();
        match self.0.poll(task.waker(), |work, waker| poll_steps(work, waker, cx, id))? {
            Some(made) => made.into_output(cx).map(Submitted::Ready),
            // Its own steps submit only while they run. The state is checked first, because `is_part_of` walks all pollers.
            None if self.0.is_running() && cx.is_part_of(id) => Err(Misuse::AwaitsItself.into()),
            None => {
                cx.waits().may_wait_for_waker("shared")?;
                Ok(Submitted::Pending(self))
            }
        }
    }
}

/// The result of a poll. The error is that of making a context for the steps.
type PolledSteps<S, T> = Result<Polled<Work<S>, Made<T>>, (Work<S>, Error)>;

/// Polls the steps.
fn poll_steps<S: Submit>(
    (steps, steps_cx): Work<S>,
    waker: &Waker,
    cx: &ExecutionContext,
    id: usize,
) -> PolledSteps<S, S::Output> {
    let steps_cx = match steps_cx.map_or_else(|| cx.separate_root(id).map(Box::new), Ok) {
        Ok(steps_cx) => steps_cx,
        Err(error) => return Err(((steps, None), error)),
    };
    let submitted = {
        let _guard = PollerGuard::new(&steps_cx, cx);
        steps.submit(&mut Context::from_waker(waker), &steps_cx)
    };
    let output = match submitted {
        Ok(Submitted::Pending(steps)) => return Ok(Polled::Pending((steps, Some(steps_cx)))),
        Ok(Submitted::Ready(output)) => Ok(output),
        Err(error) => Err(error),
    };
    // Also after an error: the submissions until then are part of every clone's run.
    let after = steps_cx.snapshot().map(Arc::new);
    steps_cx.set_counted();
    Ok(Polled::Ended(Made { result: output.map(Arc::new), after }))
}

impl<T> Made<T> {
    /// Returns the output, and orders later work of `cx` after the work that made it.
    fn into_output(self, cx: &ExecutionContext) -> Result<Arc<T>> {
        let joined = self.after.map_or(Ok(()), |after| cx.join_stream(&after));
        self.result.and_then(|output| joined.map(|()| output))
    }
}

impl<T> Clone for Made<T> {
    fn clone(&self) -> Self {
        Self { result: self.result.clone(), after: self.after.clone() }
    }
}

impl<S: Submit> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Submit> std::fmt::Debug for Shared<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({})", self.0.state())
    }
}
