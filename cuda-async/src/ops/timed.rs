//! `timed`: the device time of an operation.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use cuda_core::{DeviceBuffer, Error, Landing, PinnedBuffer, Pinning, Result, Stream, Waiter};

use crate::{
    context::{Credit, ExecutionContext},
    op::{Live, Submit},
};

/// The steps of [`DeviceOp::timed`](crate::ops::DeviceOp::timed).
pub struct Timed<S: Submit>(Live<State<S, S::Output>>);

enum State<S, T> {
    Idle(S, Credit),
    /// The start is written to the first element of the buffer.
    Running(S, DeviceBuffer<u64>),
    /// The end is written to the second one.
    Pinning(T, DeviceBuffer<u64>, Option<Pinning<u64>>),
    Reading(T, Landing<u64>, Option<Waiter>),
}

impl<S: Submit> Timed<S> {
    pub(crate) const fn new(steps: S) -> Self {
        Self(Live::new(State::Idle(steps, Credit::new())))
    }
}

impl<S: Submit> Submit for Timed<S> {
    type Output = (S::Output, Duration);

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        loop {
            match self.0.get()? {
                State::Idle(_, credit) => {
                    cx.may_wait("timed")?;
                    ready!(cx.poll_credit(credit, task))?;
                    let times = cx.enqueue(begin)?;
                    let State::Idle(steps, _) = self.0.take()? else { return ended() };
                    self.0.set(State::Running(steps, times));
                }
                State::Running(steps, _) => {
                    let output = ready!(steps.poll_submit(task, cx));
                    let State::Running(steps, mut times) = self.0.take()? else { return ended() };
                    drop(steps);
                    let output = output?;
                    cx.enqueue(|stream| times.slice_mut(1..)?.timestamp(stream))?;
                    self.0.set(State::Pinning(output, times, None));
                }
                State::Pinning(_, times, pinning) => {
                    let host = ready!(cx.poll_pinned(pinning, times.len(), task))?;
                    let landing =
                        cx.enqueue(|stream: &Stream| times.as_slice().download(stream, host))?;
                    let State::Pinning(output, ..) = self.0.take()? else { return ended() };
                    self.0.set(State::Reading(output, landing, None));
                }
                State::Reading(_, landing, waiter) => {
                    let times = ready!(cx.poll_landing(landing, waiter, task))?;
                    let State::Reading(output, ..) = self.0.take()? else { return ended() };
                    return Poll::Ready(Ok((output, between(&times))));
                }
            }
        }
    }

    fn nested_boxes(&self) -> usize {
        match self.0.peek() {
            Some(State::Idle(steps, _) | State::Running(steps, _)) => steps.nested_boxes(),
            _ => 0,
        }
    }
}

/// Makes room for two times, and writes the first.
fn begin(stream: &Stream) -> Result<DeviceBuffer<u64>> {
    let mut times = DeviceBuffer::uninitialized(stream, 2)?;
    times.as_slice_mut().timestamp(stream)?;
    Ok(times)
}

fn between(times: &PinnedBuffer<u64>) -> Duration {
    Duration::from_nanos(times[1].saturating_sub(times[0]))
}

fn ended<T>() -> Poll<Result<T>> {
    Poll::Ready(Err(Error::AlreadyEnded))
}
