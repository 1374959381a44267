//! `race`: runs operations concurrently and takes the result of the first that ends.

use std::task::{Context, Poll};

use cuda_core::{Error, Limit, Quantity, Result};

use crate::{
    context::{ExecutionContext, Fork},
    op::{IntoDeviceOp, Op, Submit, Submitted, poll_stored},
    ops::settled::Settled,
};

/// The steps of [`race`].
pub struct Race<S: Submit> {
    racers: Vec<Option<Settled<S>>>,
    fork: Fork,
}

/// Runs operations concurrently and gives the result of the first one that is
/// [`settled`](crate::ops::DeviceOp::settled). The result is a value or an error. Each operation runs on a borrowed
/// stream.
///
/// The others are dropped. Work of them that has begun runs to its end, because a device cannot be stopped. Other work
/// may be skipped, as for a dropped [`DeviceFuture`](crate::DeviceFuture). Nothing waits for it. Building a race
/// allocates a list. [`race!`](crate::race!) takes operations of different types.
///
/// ```
/// use cuda_async::{prelude::*, race};
/// let replicas = [vec![1, 2], vec![1, 2]];
/// assert_eq!(race(replicas.map(|replica| h2d(replica).then(to_host))).sync()?, [1, 2]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// The error of the first operation that ends; [`Error::OutOfRange`] if there are no operations;
/// [`Error::NeedsHostData`] in [`async_on`](crate::DeviceOp::async_on), where steps may not wait.
pub fn race<I>(ops: I) -> Op<Race<<I::Item as IntoDeviceOp>::Steps>>
where
    I: IntoIterator<Item: IntoDeviceOp>,
{
    let racer = |op: I::Item| Some(Settled::new(op.into_op().into_steps()));
    Op::new(Race { racers: ops.into_iter().map(racer).collect(), fork: Fork::new() })
}

/// Runs operations of different types concurrently, as [`race`](crate::race()) does. They have the same output type,
/// and each of them is boxed.
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
        $crate::ops::race([$($crate::ops::DeviceOp::boxed($crate::op::IntoDeviceOp::into_op($op))),+])
    };
}

impl<S: Submit> Submit for Race<S> {
    type Output = S::Output;

    fn submit(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        if self.racers.is_empty() {
            return Err(no_operations());
        }
        cx.waits().wait_by_wakers("race", task)?;
        // The last context is this one, and no racer uses it. So work behind the race does not wait for the losers,
        // and need not wait for the winner, which has completed.
        let contexts = self.fork.contexts(cx, self.racers.len() + 1);
        for (racer, cx) in self.racers.iter_mut().zip(contexts) {
            if let Poll::Ready(first) = poll_stored(racer, task, cx) {
                return first.map(Submitted::Ready);
            }
        }
        Ok(Submitted::Pending(self))
    }
}

#[cold]
fn no_operations() -> Error {
    Error::out_of_range("`race`", Quantity::Operations, 0, Limit::AtLeast(1))
}
