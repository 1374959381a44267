//! `Prepared`: a launch whose shape is known only when its arguments are ready.

use std::task::{Context, Poll};

use cuda_core::{Error, Function, LaunchConfig, Result};

use super::{
    arguments::argument::{Buffers, KernelArgs},
    launch::{LaunchOp, buffers},
};
use crate::{
    context::ExecutionContext,
    op::{Op, Submit, Submitted},
};

/// The steps of [`launch_unless_empty`].
#[derive(Clone)]
pub struct Prepared<A>(State<A>);

#[derive(Clone)]
enum State<A> {
    Launch(LaunchOp<A>),
    /// There are no elements, so nothing runs.
    Empty(Option<A>),
}

/// Runs a declared kernel as [`launch`](crate::launch) does, and takes the function by value. The launch is refused if an
/// argument has another name that the kernel may write through.
///
/// # Safety
/// As for [`launch`](crate::launch).
#[inline]
pub unsafe fn launch_given<A: KernelArgs>(
    function: Function,
    config: LaunchConfig,
    args: A,
) -> Op<LaunchOp<A>> {
    // SAFETY: the caller promises it.
    Op::new(unsafe { LaunchOp::new(function, config, args, true) })
}

/// Runs a declared kernel as [`launch_given`] does. If `config` is `None`, there are no elements: nothing is launched, and
/// the output is the buffers.
///
/// # Safety
/// As for [`launch`](crate::launch).
#[inline]
pub unsafe fn launch_unless_empty<A: KernelArgs>(
    function: Function,
    config: Option<LaunchConfig>,
    args: A,
) -> Op<Prepared<A>> {
    Op::new(Prepared(match config {
        // SAFETY: the caller promises it.
        Some(config) => State::Launch(unsafe { LaunchOp::new(function, config, args, true) }),
        None => State::Empty(Some(args)),
    }))
}

fn given_back<A: KernelArgs>(args: Option<A>) -> Result<Buffers<A>> {
    args.map(buffers).ok_or(Error::AlreadyEnded)
}

impl<A: KernelArgs> Submit for Prepared<A> {
    type Output = Buffers<A>;

    #[inline]
    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Buffers<A>>> {
        match &mut self.0 {
            State::Launch(launch) => launch.poll_submit(task, cx),
            State::Empty(args) => Poll::Ready(given_back(args.take())),
        }
    }

    #[inline(always)] // as for `LaunchOp`
    fn submit_now(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Submitted<Self> {
        match self.0 {
            State::Launch(launch) => {
                launch.submit_now(task, cx).map_err(|launch| Self(State::Launch(launch)))
            }
            State::Empty(args) => Ok(given_back(args)),
        }
    }
}
