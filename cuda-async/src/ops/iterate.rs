//! `iterate`: a loop whose turns are operations.

use std::{
    ops::ControlFlow,
    task::{Context, Poll, ready},
};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Live, Op, Submit, Submitted, poll_once},
};

/// The number of turns that one poll submits before it yields to the executor.
pub const MAX_TURNS_PER_POLL: usize = 64;

/// The steps of [`iterate`].
#[derive(Clone)]
pub struct Iterate<T, F, S> {
    turn: Live<Turn<T, S>>,
    f: F,
}

#[derive(Clone)]
enum Turn<T, S> {
    Next(T),
    Running(S),
}

/// Passes the state to `f`, runs the operation that `f` returns, and repeats. The output `Continue(state)` starts the
/// next turn, and `Break(value)` ends the loop. Memory use does not depend on the number of turns.
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
    Op::new(Iterate { turn: Live::new(Turn::Next(state)), f })
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
        if let Turn::Running(steps) = self.turn.get()? {
            let output = ready!(steps.poll_submit(task, cx));
            self.turn.end();
            match output? {
                ControlFlow::Break(value) => return Poll::Ready(Ok(value)),
                ControlFlow::Continue(state) => self.turn.set(Turn::Next(state)),
            };
        }
        let Turn::Next(state) = self.turn.take()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        match run_turns(state, &mut self.f, task, cx) {
            Ok(output) => Poll::Ready(output),
            Err(turn) => {
                self.turn.set(turn);
                Poll::Pending
            }
        }
    }

    #[inline]
    fn submit_now(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Submitted<Self> {
        match self.turn.into_state() {
            Some(Turn::Next(state)) => run_turns(state, &mut self.f, task, cx)
                .map_err(|turn| Self { turn: Live::new(turn), f: self.f }),
            Some(running) => poll_once(Self { turn: Live::new(running), f: self.f }, task, cx),
            None => Ok(Err(Error::AlreadyEnded)),
        }
    }
}

/// Runs turns until the loop ends. Returns the turn that is pending as the outer error.
#[inline]
fn run_turns<T, B, F, O, S>(
    mut state: T,
    f: &mut F,
    task: &mut Context<'_>,
    cx: &ExecutionContext,
) -> Result<Result<B>, Turn<T, S>>
where
    F: FnMut(T) -> O,
    O: IntoDeviceOp<Output = ControlFlow<B, T>, Steps = S>,
    S: Submit<Output = ControlFlow<B, T>>,
{
    let mut turns = 0;
    loop {
        match f(state).into_op().into_steps().submit_now(task, cx) {
            Ok(Ok(ControlFlow::Continue(next))) => state = next,
            Ok(Ok(ControlFlow::Break(value))) => return Ok(Ok(value)),
            Ok(Err(error)) => return Ok(Err(error)),
            Err(steps) => return Err(Turn::Running(steps)),
        }
        turns += 1;
        if turns % MAX_TURNS_PER_POLL == 0 && cx.yield_now(task) {
            return Err(Turn::Next(state));
        }
    }
}
