//! `iterate`: a loop whose turns are operations.

use std::{
    ops::ControlFlow,
    task::{Context, Poll, ready},
};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit},
};

/// Turns that are submitted before the executor gets a chance to do something else.
pub const MAX_TURNS_PER_POLL: usize = 64;

/// Steps of [`iterate`].
#[derive(Clone)]
pub struct Iterate<T, F, S> {
    turn: Turn<T, S>,
    f: F,
}

#[derive(Clone)]
enum Turn<T, S> {
    Next(T),
    Runs(S),
    Ended,
}

/// Runs the operation that `f` makes of the state, again and again: `Continue` holds the next state,
/// `Break` ends the loop with its value. Any number of turns uses the same memory.
///
/// ```
/// use std::ops::ControlFlow::{Break, Continue};
/// use cuda_async::{iterate, prelude::*};
/// let op = iterate(1u32, |x| {
///     h2d(vec![x * 2]).then(to_host).map(|v| if v[0] > 100 { Break(v[0]) } else { Continue(v[0]) })
/// });
/// assert_eq!(op.sync()?, 128);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub fn iterate<T, B, F, O>(state: T, f: F) -> Op<Iterate<T, F, O::Steps>>
where
    T: Send,
    B: Send,
    F: FnMut(T) -> O + Send,
    O: IntoDeviceOp<Output = ControlFlow<B, T>>,
{
    Op::new(Iterate { turn: Turn::Next(state), f })
}

impl<T, B, F, O, S> Submit for Iterate<T, F, S>
where
    T: Send,
    B: Send,
    F: FnMut(T) -> O + Send,
    O: IntoDeviceOp<Output = ControlFlow<B, T>, Steps = S>,
    S: Submit<Output = ControlFlow<B, T>>,
{
    type Output = B;

    #[inline]
    fn poll_submit(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<B>> {
        let mut turns = 0;
        loop {
            self.turn = match std::mem::replace(&mut self.turn, Turn::Ended) {
                Turn::Next(state) => Turn::Runs((self.f)(state).into_op().into_steps()),
                runs => runs,
            };
            let Turn::Runs(steps) = &mut self.turn else {
                return Poll::Ready(Err(Error::AlreadyEnded));
            };
            let output = ready!(steps.poll_submit(task, cx));
            self.turn = Turn::Ended;
            match output? {
                ControlFlow::Break(value) => return Poll::Ready(Ok(value)),
                ControlFlow::Continue(state) => self.turn = Turn::Next(state),
            }
            turns += 1;
            if turns % MAX_TURNS_PER_POLL == 0 && cx.yield_now(task) {
                return Poll::Pending;
            }
        }
    }
}
