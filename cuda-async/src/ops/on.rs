//! `on`: an operation on a device of its own.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{Device, Error, Result};

use crate::{
    context::ExecutionContext, op::Submit, ops::settled::Settled, policy::SchedulingPolicy,
    runtime::device_policy,
};

/// Steps of [`DeviceOp::on`](crate::DeviceOp::on).
pub struct On<S: Submit>(State<S>);

enum State<S: Submit> {
    Idle(S, Device),
    /// On the device that is in use anyway.
    Here(S),
    There(There<S>),
    Ended,
}

struct There<S: Submit> {
    steps: Settled<S>,
    cx: ExecutionContext,
    /// So that those who come next find it.
    _policy: Arc<dyn SchedulingPolicy>,
}

impl<S: Submit> On<S> {
    pub(crate) const fn new(steps: S, device: Device) -> Self {
        Self(State::Idle(steps, device))
    }
}

impl<S: Submit> There<S> {
    fn new(steps: S, device: &Device, cx: &ExecutionContext, task: &Context<'_>) -> Result<Self> {
        cx.wait_by_wakers(task)?;
        let policy = device_policy(device)?;
        let cx = cx.on_other_stream(policy.place()?);
        Ok(Self { steps: Settled::new(steps), cx, _policy: policy })
    }
}

impl<S: Submit> Submit for On<S> {
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        self.0 = match std::mem::replace(&mut self.0, State::Ended) {
            State::Idle(steps, device) if device == *cx.device() => State::Here(steps),
            State::Idle(steps, device) => State::There(There::new(steps, &device, cx, task)?),
            begun => begun,
        };
        let output = match &mut self.0 {
            State::Here(steps) => ready!(steps.poll_submit(task, cx)),
            State::There(there) => ready!(there.steps.poll_submit(task, &there.cx)),
            _ => Err(Error::AlreadyEnded),
        };
        self.0 = State::Ended;
        Poll::Ready(output)
    }
}
