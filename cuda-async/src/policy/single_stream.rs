//! `SingleStream`: all operations on one stream.

use cuda_core::{Device, Result, Stream};

use crate::policy::scheduling_policy::SchedulingPolicy;

/// A policy that runs all operations on one stream, in sequence.
#[derive(Debug)]
pub struct SingleStream(Stream);

impl SingleStream {
    /// Creates a policy on an idle stream of `device`.
    ///
    /// # Errors
    /// The error of the device if it has no stream to lend.
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Self(device.lend_idle_stream(0)?))
    }
}

/// Runs all operations on this stream.
impl From<Stream> for SingleStream {
    fn from(stream: Stream) -> Self {
        Self(stream)
    }
}

impl SchedulingPolicy for SingleStream {
    fn place(&self) -> Result<Stream> {
        Ok(self.0.clone())
    }

    fn load(&self) -> u64 {
        self.0.in_flight()
    }
}
