//! `iterate`: a loop whose iterations are operations.

use std::{
    ops::ControlFlow,
    task::{Context, Poll, ready},
};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Live, Op, Submit, Submitted, poll_once},
};

/// The number of iterations that one poll submits before it yields to the executor.
pub const MAX_ITERATIONS_PER_POLL: usize = 64;

/// The steps of [`iterate`].
#[derive(Clone)]
pub struct Iterate<T, F, S> {
    iteration: Live<Iteration<T, S>>,
    f: F,
}

#[derive(Clone)]
enum Iteration<T, S> {
    Next(T),
    Running(S),
}

/// Runs operations in a loop: `f` makes each one from the current state. The output `Continue(state)` starts the next
/// iteration, and `Break(value)` ends the loop. Memory use does not depend on the number of iterations.
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
    Op::new(Iterate { iteration: Live::new(Iteration::Next(state)), f })
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
        if let Iteration::Running(steps) = self.iteration.get()? {
            let output = ready!(steps.poll_submit(task, cx));
            self.iteration.end();
            match output? {
                ControlFlow::Break(value) => return Poll::Ready(Ok(value)),
                ControlFlow::Continue(state) => self.iteration.set(Iteration::Next(state)),
            };
        }
        let Iteration::Next(state) = self.iteration.take()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        match run_iterations(state, &mut self.f, task, cx) {
            Ok(output) => Poll::Ready(output),
            Err(iteration) => {
                self.iteration.set(iteration);
                Poll::Pending
            }
        }
    }

    #[inline]
    fn submit_now(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Submitted<Self> {
        match self.iteration.into_state() {
            Some(Iteration::Next(state)) => run_iterations(state, &mut self.f, task, cx)
                .map_err(|iteration| Self { iteration: Live::new(iteration), f: self.f }),
            Some(running) => poll_once(Self { iteration: Live::new(running), f: self.f }, task, cx),
            None => Ok(Err(Error::AlreadyEnded)),
        }
    }
}

/// Runs iterations until the loop ends. Returns the iteration that is pending as the outer error.
#[inline]
fn run_iterations<T, B, F, O, S>(
    mut state: T,
    f: &mut F,
    task: &mut Context<'_>,
    cx: &ExecutionContext,
) -> Result<Result<B>, Iteration<T, S>>
where
    F: FnMut(T) -> O,
    O: IntoDeviceOp<Output = ControlFlow<B, T>, Steps = S>,
    S: Submit<Output = ControlFlow<B, T>>,
{
    let mut iterations = 0;
    loop {
        match f(state).into_op().into_steps().submit_now(task, cx) {
            Ok(Ok(ControlFlow::Continue(next))) => state = next,
            Ok(Ok(ControlFlow::Break(value))) => return Ok(Ok(value)),
            Ok(Err(error)) => return Ok(Err(error)),
            Err(steps) => return Err(Iteration::Running(steps)),
        }
        iterations += 1;
        if iterations % MAX_ITERATIONS_PER_POLL == 0 && cx.yield_now(task) {
            return Err(Iteration::Next(state));
        }
    }
}
