//! Where operations run.

use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_core::{Device, Result, Stream};

/// Chooses the stream for an operation. Any thread may ask at any time.
pub trait SchedulingPolicy: Send + Sync {
    /// The stream for the next operation.
    ///
    /// # Errors
    /// What the device says if it has no stream to give.
    fn place(&self) -> Result<Stream>;
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
        let streams = (0..streams.max(1)).map(|_| device.new_stream()).collect::<Result<_>>()?;
        Ok(Self { streams, turn: AtomicUsize::new(0) })
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
        Ok(Self(device.new_stream()?))
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
}
