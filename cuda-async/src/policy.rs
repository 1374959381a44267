//! Where operations run.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use cuda_core::{Device, Result, Stream};

mod least_loaded;
mod priorities;
mod spread;

pub use least_loaded::LeastLoaded;
pub use priorities::Priorities;
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

/// Streams that [`StreamPoolRoundRobin::new`] makes.
pub const DEFAULT_STREAMS: usize = 4;

/// A few streams in turn; one that is known to be idle is used again before the turn moves on, since it is
/// warm. The default.
#[derive(Debug)]
pub struct StreamPoolRoundRobin {
    streams: Vec<Stream>,
    turn: AtomicUsize,
}

impl StreamPoolRoundRobin {
    /// [`DEFAULT_STREAMS`] streams of `device`.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(device: &Device) -> Result<Self> {
        Self::with_streams(device, DEFAULT_STREAMS)
    }

    /// This many streams of `device`, at least one.
    ///
    /// # Errors
    /// What the device says.
    pub fn with_streams(device: &Device, streams: usize) -> Result<Self> {
        Self::with_priority(device, streams, 0)
    }

    /// As [`with_streams`](Self::with_streams), where the streams have a priority: lower ones run first. The
    /// default is 0. A device takes the nearest that it knows.
    ///
    /// # Errors
    /// What the device says.
    pub fn with_priority(device: &Device, streams: usize, priority: i32) -> Result<Self> {
        Ok(Self { streams: lend(device, streams, priority)?, turn: AtomicUsize::new(0) })
    }
}

impl SchedulingPolicy for StreamPoolRoundRobin {
    fn place(&self) -> Result<Stream> {
        let turn = self.turn.load(Ordering::Relaxed);
        let current = &self.streams[turn % self.streams.len()];
        if current.is_known_idle() {
            return Ok(current.clone());
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(self.streams[turn % self.streams.len()].clone())
    }

    fn load(&self) -> u64 {
        in_flight(&self.streams)
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

/// At least one stream, of those that the device keeps for that.
fn lend(device: &Device, streams: usize, priority: i32) -> Result<Vec<Stream>> {
    (0..streams.max(1)).map(|_| device.lend_idle_stream(priority)).collect()
}

fn in_flight(streams: &[Stream]) -> u64 {
    streams.iter().map(Stream::in_flight).sum()
}
