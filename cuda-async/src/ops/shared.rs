//! `shared`: an operation that runs once and whose output many use.
//!
//! # States
//! - *Waiting*: nobody polls the steps. They may have been polled before, and then have a context.
//! - *Running*: one poller has them; the others leave their wakers and wait.
//! - *Ended*: the result is there for everyone.
//!
//! The steps run in a context of their own, so that it does not matter whose run drives them. What wakes
//! the steps wakes every clone that waits, and a clone that is dropped while it waits wakes the others:
//! whoever comes next goes on. Who was woken while the steps were being polled found nothing to do, and is woken
//! again when they are put back: the one that polled them may never come again.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use cuda_core::{Error, Result, Stream};

use crate::{
    context::ExecutionContext,
    op::Submit,
    ops::once::{Member, Turn},
};

/// Steps of [`DeviceOp::shared`](crate::DeviceOp::shared). Clones run once together.
pub struct Shared<S: Submit>(Member<Work<S>, Made<S::Output>>);

/// The steps, and their context once they have been polled.
type Work<S> = (S, Option<ExecutionContext>);

/// The result, and where a run that uses it has to wait for.
struct Made<T> {
    result: Result<Arc<T>>,
    after: Option<Arc<Stream>>,
}

impl<S: Submit> Shared<S> {
    pub(crate) fn new(steps: S) -> Self {
        let panicked = || Made { result: Err(Error::AlreadyEnded), after: None };
        Self(Member::new((steps, None), panicked))
    }
}

impl<S: Submit<Output: Sync>> Submit for Shared<S> {
    type Output = Arc<S::Output>;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        match self.0.poll(task.waker(), |work, waker| take_turn(work, waker, cx))? {
            Some(made) => Poll::Ready(made.into_output(cx)),
            None => Poll::Pending,
        }
    }
}

/// What a turn came to; the error is that of making a context for the steps.
type Took<S, T> = Result<Turn<Work<S>, Made<T>>, (Work<S>, Error)>;

/// Polls the steps.
fn take_turn<S: Submit>(
    (mut steps, steps_cx): Work<S>,
    waker: &Waker,
    cx: &ExecutionContext,
) -> Took<S, S::Output> {
    let steps_cx = match steps_cx.map_or_else(|| cx.separate_root(), Ok) {
        Ok(steps_cx) => steps_cx,
        Err(error) => return Err(((steps, None), error)),
    };
    let Poll::Ready(output) = steps.poll_submit(&mut Context::from_waker(waker), &steps_cx) else {
        return Ok(Turn::Pending((steps, Some(steps_cx))));
    };
    drop(steps);
    // Also after an error: the submissions until then are part of every clone's run.
    let after = steps_cx.snapshot().map(Arc::new);
    Ok(Turn::Ended(Made { result: output.map(Arc::new), after }))
}

impl<T> Made<T> {
    /// The output, for a run in `cx` that comes after the work that made it.
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
