//! Streams of a device: new ones, and those that it lends.

use std::sync::Arc;

use super::stream::{OnDrop, Stream};
use crate::{handle::device::Device, order::timeline::Timeline, protocol::Result};

impl Device {
    /// Creates a stream. With more than a hundred streams alive, a GPU's driver may wait for every running kernel
    /// before it creates another one.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let stream = device.new_stream()?;
    /// let buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?; // enqueued on this stream
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// An error of the backend.
    pub fn new_stream(&self) -> Result<Stream> {
        self.new_stream_with_priority(0)
    }

    /// Creates a stream with a priority. Lower numbers run first, and 0 is the default. A device uses the nearest
    /// priority that it has; one without priorities ignores it.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let urgent = device.new_stream_with_priority(-5)?;
    /// assert_eq!(urgent.priority(), -5);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// An error of the backend.
    pub fn new_stream_with_priority(&self, priority: i32) -> Result<Stream> {
        self.core().reclaim_all();
        Ok(Stream::new(self.clone(), self.core().create_stream(priority)?, OnDrop::Destroy))
    }

    /// Borrows a stream from the device's pool, because creating one is slow. An idle stream is preferred. The stream
    /// goes back to the pool when its last handle is dropped, even if work is in flight.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let stream = device.lend_stream(0)?;
    /// let id = stream.id();
    /// drop(stream); // goes back to the pool
    /// assert_eq!(device.lend_stream(0)?.id(), id);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// An error of the backend.
    pub fn lend_stream(&self, priority: i32) -> Result<Stream> {
        lend(self, priority, self.core().spare_streams.take(priority))
    }

    /// Borrows a stream as [`lend_stream`](Device::lend_stream) does, but only one that is known to be idle. Creates
    /// one if the pool has none.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// let stream = device.lend_idle_stream(0)?;
    /// assert_eq!(stream.in_flight(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// An error of the backend.
    pub fn lend_idle_stream(&self, priority: i32) -> Result<Stream> {
        lend(self, priority, self.core().spare_streams.take_idle(priority))
    }
}

/// Lends a spare stream, or a new one.
fn lend(device: &Device, priority: i32, spare: Option<Arc<Timeline>>) -> Result<Stream> {
    let timeline = spare.map_or_else(|| device.core().create_stream(priority), Ok)?;
    Ok(Stream::new(device.clone(), timeline, OnDrop::Recycle))
}
