//! Jobs that may block, for callers inside a poll: they run on the helper thread of a device.

use std::task::{Context, Poll};

use super::device::Device;
use crate::{
    protocol::{Error, Result},
    sync::{Receiver, one_shot},
};

/// A job on the helper thread of a device. Dropping it does not stop the job.
#[must_use = "the result of the job is lost unless it is polled or waited for"]
pub(crate) struct BlockingJob<T>(Receiver<T>);

impl Device {
    /// Runs a job that may block on the helper thread of this device. The thread starts with the first job and ends after
    /// half a second without one. The jobs of a device run one after the other.
    ///
    /// # Errors
    /// [`Error::Host`] if the thread cannot be started.
    pub(crate) fn run_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<BlockingJob<T>> {
        let (sender, receiver) = one_shot();
        self.core().helper.run(move || sender.send(job())).map_err(|error| {
            let what = "failed to start the helper thread of the device".into();
            Error::Host { what, detail: error.to_string() }
        })?;
        Ok(BlockingJob(receiver))
    }
}

impl<T> BlockingJob<T> {
    /// Ready with the result of the job.
    ///
    /// # Errors
    /// [`Error::Host`] if the job panicked, or if its result was taken before.
    pub(crate) fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<T>> {
        self.0.poll(task).map(|result| result.ok_or_else(no_result))
    }
}

#[cold]
fn no_result() -> Error {
    let what = "a job on the helper thread of the device".into();
    Error::Host { what, detail: "it panicked, or its result was taken before".into() }
}
