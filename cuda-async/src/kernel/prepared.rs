//! `Prepared`: a launch whose shape is known only when its arguments are ready.

use std::task::Context;

use cuda_core::{Function, LaunchConfig, Result};

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
    Empty(A),
}

/// Runs a declared kernel as [`launch`](crate::launch) does, and takes the function by value. The launch is refused if
/// an argument has another name that the kernel may write through.
///
/// # Safety
/// The requirements of [`launch`](crate::launch).
#[inline]
pub unsafe fn launch_given<A: KernelArgs>(
    function: Function,
    config: LaunchConfig,
    args: A,
) -> Op<LaunchOp<A>> {
    // SAFETY: the kernel keeps the rules of `launch` with these arguments, as this function requires.
    Op::new(unsafe { LaunchOp::new(function, config, args, true) })
}

/// Runs a declared kernel as [`launch_given`] does. If `config` is `None`, there are no elements: nothing is launched,
/// and the output is the buffers.
///
/// # Safety
/// The requirements of [`launch`](crate::launch).
#[inline]
pub unsafe fn launch_unless_empty<A: KernelArgs>(
    function: Function,
    config: Option<LaunchConfig>,
    args: A,
) -> Op<Prepared<A>> {
    Op::new(Prepared(match config {
        // SAFETY: the kernel keeps the rules of `launch` with these arguments, as this function requires.
        Some(config) => State::Launch(unsafe { LaunchOp::new(function, config, args, true) }),
        None => State::Empty(args),
    }))
}

impl<A: KernelArgs> Submit for Prepared<A> {
    type Output = Buffers<A>;

    #[inline(always)] // as for `LaunchOp`
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        Ok(match self.0 {
            State::Launch(launch) => {
                launch.submit(task, cx)?.map_pending(|launch| Self(State::Launch(launch)))
            }
            State::Empty(args) => Submitted::Ready(buffers(args)),
        })
    }
}
