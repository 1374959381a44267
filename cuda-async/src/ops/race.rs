//! `race`: several operations, of which the first to end counts.

use std::task::{Context, Poll};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit},
    ops::{branch::Fork, settled::Settled},
};

/// Steps of [`race`].
pub struct Race<S: Submit> {
    /// None once it has ended.
    racers: Option<Vec<Settled<S>>>,
    fork: Fork,
}

/// Runs operations at the same time, each on a stream beside this operation's own; the first that is
/// [`settled`](crate::ops::DeviceOp::settled), with a value or an error, gives the result.
///
/// The others are dropped. What they had submitted runs on, since a device cannot be stopped, and its memory
/// lives until that is done; nothing waits for it. Building one allocates a list; [`race!`](crate::race!) takes
/// operations of different types.
///
/// ```
/// use cuda_async::{prelude::*, race};
/// let replicas = [vec![1, 2], vec![1, 2]];
/// assert_eq!(race(replicas.map(|replica| h2d(replica).then(to_host))).sync()?, [1, 2]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// What the first to end says; [`Error::OutOfRange`] where there are none.
pub fn race<I>(ops: I) -> Op<Race<<I::Item as IntoDeviceOp>::Steps>>
where
    I: IntoIterator<Item: IntoDeviceOp>,
{
    let racers = ops.into_iter().map(|op| Settled::new(op.into_op().into_steps())).collect();
    Op::new(Race { racers: Some(racers), fork: Fork::new() })
}

/// [`race`](crate::race()) of operations of different types with one output; boxes each.
///
/// ```
/// use cuda_async::{prelude::*, race, value};
/// let usual = h2d(vec![1, 2]).then(to_host);
/// assert_eq!(race!(value(vec![1, 2]), usual).sync()?, [1, 2]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[macro_export]
macro_rules! race {
    ($($op:expr),+ $(,)?) => {
        $crate::race([$($crate::DeviceOp::boxed($crate::IntoDeviceOp::into_op($op))),+])
    };
}

impl<S: Submit> Submit for Race<S> {
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        let polled = self.poll_racers(task, cx);
        if polled.is_ready() {
            self.racers = None;
            self.fork = Fork::new();
        }
        polled
    }
}

#[cold]
fn nobody_runs() -> Error {
    Error::OutOfRange { what: "a race".into(), detail: "no operation runs in it".into() }
}

impl<S: Submit> Race<S> {
    fn poll_racers(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        let racers = self.racers.as_mut().ok_or(Error::AlreadyEnded)?;
        if racers.is_empty() {
            return Poll::Ready(Err(nobody_runs()));
        }
        cx.wait_by_wakers(task)?;
        // Nobody runs in the first context, which is this one: nothing behind the race waits for a loser. Nor
        // for the winner, which has run.
        let contexts = self.fork.contexts(cx, racers.len() + 1)?;
        for (racer, cx) in racers.iter_mut().zip(&contexts[1..]) {
            if let Poll::Ready(first) = racer.poll_submit(task, cx) {
                return Poll::Ready(first);
            }
        }
        Poll::Pending
    }
}
