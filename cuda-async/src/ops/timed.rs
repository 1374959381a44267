//! `timed`: the device time of an operation.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use cuda_core::{DeviceBuffer, Download, PinnedBuffer, Pinning, Result, Stream, Waiter};

use crate::{
    context::{CreditWait, ExecutionContext},
    op::{Submit, Submitted},
};

/// The steps of [`DeviceOp::timed`](crate::ops::DeviceOp::timed).
pub struct Timed<S: Submit>(State<S, S::Output>);

enum State<S, T> {
    Idle(S, CreditWait),
    /// The start is written to the first element of the buffer.
    Running(S, DeviceBuffer<u64>),
    /// The end is written to the second one.
    Pinning(T, DeviceBuffer<u64>, Option<Pinning<u64>>),
    Reading(T, Download<u64>, Option<Waiter>),
}

impl<S: Submit> Timed<S> {
    pub(crate) const fn new(steps: S) -> Self {
        Self(State::Idle(steps, CreditWait::new()))
    }
}

impl<S: Submit> Submit for Timed<S> {
    type Output = (S::Output, Duration);

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let pending = |state| Ok(Submitted::Pending(Self(state)));
        let mut state = self.0;
        loop {
            state = match state {
                State::Idle(steps, mut credit) => {
                    cx.waits().may_wait("timed")?;
                    if cx.poll_credit(&mut credit, task)?.is_pending() {
                        return pending(State::Idle(steps, credit));
                    }
                    State::Running(steps, cx.enqueue(begin)?)
                }
                State::Running(steps, mut times) => match steps.submit(task, cx)? {
                    Submitted::Pending(steps) => return pending(State::Running(steps, times)),
                    Submitted::Ready(output) => {
                        cx.enqueue(|stream| times.slice_mut(1..)?.timestamp(stream))?;
                        State::Pinning(output, times, None)
                    }
                },
                State::Pinning(output, times, mut pinning) => {
                    match cx.waits().poll_pinned(&mut pinning, times.len(), task)? {
                        Poll::Pending => return pending(State::Pinning(output, times, pinning)),
                        Poll::Ready(host) => {
                            let download = cx.enqueue(|stream: &Stream| {
                                times.as_slice().download(stream, host)
                            })?;
                            State::Reading(output, download, None)
                        }
                    }
                }
                State::Reading(output, mut download, mut waiter) => {
                    match cx.waits().poll_download(&mut download, &mut waiter, task)? {
                        Poll::Pending => return pending(State::Reading(output, download, waiter)),
                        Poll::Ready(times) => {
                            return Ok(Submitted::Ready((output, between(&times))));
                        }
                    }
                }
            };
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
