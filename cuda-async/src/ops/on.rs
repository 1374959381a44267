//! `on`: runs an operation on a given device.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{Device, Error, Result};

use crate::{
    context::ExecutionContext,
    op::{Live, Submit},
    ops::settled::Settled,
    policy::SchedulingPolicy,
    runtime::device_policy,
};

/// The steps of [`DeviceOp::on`](crate::ops::DeviceOp::on).
pub struct On<S: Submit>(Live<State<S>>);

enum State<S: Submit> {
    Idle(S, Device),
    /// The run uses the device already.
    SameDevice(S),
    OtherDevice(Box<OtherDevice<S>>),
}

struct OtherDevice<S: Submit> {
    steps: Settled<S>,
    cx: ExecutionContext,
    /// Held so that other operations on this device share the policy.
    _policy: Arc<dyn SchedulingPolicy>,
}

impl<S: Submit> On<S> {
    pub(crate) const fn new(steps: S, device: Device) -> Self {
        Self(Live::new(State::Idle(steps, device)))
    }
}

impl<S: Submit> OtherDevice<S> {
    fn new(steps: S, device: &Device, cx: &ExecutionContext, task: &Context<'_>) -> Result<Self> {
        cx.wait_by_wakers("on", task)?;
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
        if let State::Idle(..) = self.0.get()?
            && let State::Idle(steps, device) = self.0.take()?
        {
            self.0.set(if device == *cx.device() {
                State::SameDevice(steps)
            } else {
                State::OtherDevice(Box::new(OtherDevice::new(steps, &device, cx, task)?))
            });
        }
        let output = match self.0.get()? {
            State::SameDevice(steps) => ready!(steps.poll_submit(task, cx)),
            State::OtherDevice(other) => ready!(other.steps.poll_submit(task, &other.cx)),
            State::Idle(..) => Err(Error::AlreadyEnded),
        };
        self.0.end();
        Poll::Ready(output)
    }

    fn nested_boxes(&self) -> usize {
        match self.0.peek() {
            Some(State::Idle(steps, _) | State::SameDevice(steps)) => steps.nested_boxes(),
            Some(State::OtherDevice(other)) => other.steps.nested_boxes(),
            None => 0,
        }
    }
}
