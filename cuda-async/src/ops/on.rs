//! `on`: runs an operation on a given device.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use cuda_core::{Device, Result};

use crate::{
    context::ExecutionContext,
    op::{Submit, Submitted, poll_stored},
    ops::settled::Settled,
    policy::SchedulingPolicy,
    runtime::device_policy,
};

/// The steps of [`DeviceOp::on`](crate::ops::DeviceOp::on).
pub struct On<S: Submit>(State<S>);

enum State<S: Submit> {
    Idle(S, Device),
    /// The run uses the device already.
    SameDevice(S),
    OtherDevice(Box<OtherDevice<S>>),
}

struct OtherDevice<S: Submit> {
    steps: Option<Settled<S>>,
    cx: ExecutionContext,
    /// Held so that other operations on this device share the policy.
    _policy: Arc<dyn SchedulingPolicy>,
}

impl<S: Submit> On<S> {
    pub(crate) const fn new(steps: S, device: Device) -> Self {
        Self(State::Idle(steps, device))
    }
}

impl<S: Submit> OtherDevice<S> {
    fn new(steps: S, device: &Device, cx: &ExecutionContext, task: &Context<'_>) -> Result<Self> {
        cx.waits().wait_by_wakers("on", task)?;
        let policy = device_policy(device)?;
        let cx = cx.on_other_stream(policy.place()?);
        Ok(Self { steps: Some(Settled::new(steps)), cx, _policy: policy })
    }
}

impl<S: Submit> Submit for On<S> {
    type Output = S::Output;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let mut other = match self.0 {
            State::Idle(steps, device) if device != *cx.device() => {
                Box::new(OtherDevice::new(steps, &device, cx, task)?)
            }
            State::Idle(steps, _) | State::SameDevice(steps) => {
                let submitted = steps.submit(task, cx)?;
                return Ok(submitted.map_pending(|steps| Self(State::SameDevice(steps))));
            }
            State::OtherDevice(other) => other,
        };
        Ok(match poll_stored(&mut other.steps, task, &other.cx)? {
            Poll::Ready(output) => Submitted::Ready(output),
            Poll::Pending => Submitted::Pending(Self(State::OtherDevice(other))),
        })
    }
}
