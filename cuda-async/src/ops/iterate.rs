//! `iterate`: a loop whose iterations are operations.

use std::{ops::ControlFlow, task::Context};

use cuda_core::Result;

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit, Submitted},
};

/// The number of iterations that one poll submits before it yields to the executor.
pub const MAX_ITERATIONS_PER_POLL: usize = 64;

/// The steps of [`iterate`].
#[derive(Clone)]
pub struct Iterate<T, F, S> {
    iteration: Iteration<T, S>,
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
    Op::new(Iterate { iteration: Iteration::Next(state), f })
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
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self { iteration, mut f } = self;
        let mut steps = match iteration {
            Iteration::Next(state) => f(state).into_op().into_steps(),
            Iteration::Running(steps) => steps,
        };
        let mut iterations = 0;
        loop {
            let state = match steps.submit(task, cx)? {
                Submitted::Ready(ControlFlow::Continue(state)) => state,
                Submitted::Ready(ControlFlow::Break(value)) => return Ok(Submitted::Ready(value)),
                Submitted::Pending(steps) => {
                    let iteration = Iteration::Running(steps);
                    return Ok(Submitted::Pending(Self { iteration, f }));
                }
            };
            iterations += 1;
            if iterations % MAX_ITERATIONS_PER_POLL == 0 && cx.waits().yield_now(task) {
                return Ok(Submitted::Pending(Self { iteration: Iteration::Next(state), f }));
            }
            steps = f(state).into_op().into_steps();
        }
    }
}
