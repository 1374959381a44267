//! The state of the model: loading, ready or lost.

use cuda_async::{Device, Error};
use tokio::sync::watch;

use crate::refusal::Refusal;

/// The state of the model.
#[derive(Clone, Default)]
enum State {
    #[default]
    Loading,
    Ready(Device),
    Lost(String),
}

/// The state of the model, shared by the handlers and the task that runs the batches.
#[derive(Clone, Default)]
pub(crate) struct Readiness(watch::Sender<State>);

impl Readiness {
    pub(crate) fn set_ready(&self, device: Device) {
        self.0.send_replace(State::Ready(device));
    }

    pub(crate) fn set_lost(&self, error: &Error) {
        self.0.send_replace(State::Lost(error.to_string()));
    }

    /// Returns the device if the model is ready.
    pub(crate) fn device(&self) -> Result<Device, Refusal> {
        match &*self.0.borrow() {
            State::Loading => Err(Refusal::Loading),
            State::Ready(device) => Ok(device.clone()),
            State::Lost(error) => Err(Refusal::Lost(error.clone())),
        }
    }
}
