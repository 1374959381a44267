//! Where operations run.

use std::sync::Arc;

use cuda_core::{Device, Result, Stream};

mod least_loaded;
mod priorities;
mod round_robin;
mod spread;

pub use least_loaded::LeastLoaded;
pub use priorities::Priorities;
pub use round_robin::{DEFAULT_STREAMS, MAX_POOL, MAX_STREAMS, StreamPoolRoundRobin};
pub use spread::Devices;

/// Chooses the stream for an operation. Any thread may ask at any time.
pub trait SchedulingPolicy: Send + Sync {
    /// The stream for the next operation.
    ///
    /// # Errors
    /// What the device says if it has no stream to give.
    fn place(&self) -> Result<Stream>;

    /// How many submissions on its streams are not known to be complete, for [`Devices`] to compare; a policy that
    /// cannot tell says none.
    fn load(&self) -> u64 {
        0
    }
}

impl<P: SchedulingPolicy + ?Sized> SchedulingPolicy for Arc<P> {
    fn place(&self) -> Result<Stream> {
        (**self).place()
    }

    fn load(&self) -> u64 {
        (**self).load()
    }
}

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

/// At least one stream and at most [`MAX_POOL`], of those that the device keeps for that.
fn lend(device: &Device, streams: usize, priority: i32) -> Result<Vec<Stream>> {
    (0..streams.clamp(1, MAX_POOL)).map(|_| device.lend_idle_stream(priority)).collect()
}

fn in_flight(streams: &[Stream]) -> u64 {
    streams.iter().map(Stream::in_flight).sum()
}
