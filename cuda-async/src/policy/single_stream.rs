//! `SingleStream`: all operations on one stream.

use cuda_core::{Device, Result, Stream};

use crate::policy::scheduling_policy::SchedulingPolicy;

/// One stream: operations run one after the other.
#[derive(Debug)]
pub struct SingleStream(Stream);

impl SingleStream {
    /// A new stream of `device`.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Self(device.lend_idle_stream(0)?))
    }
}

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
