//! `LeastLoaded`: chooses the stream with the fewest submissions in flight.

use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_core::{Device, Result, Stream};

use crate::policy::{
    pool::{DEFAULT_STREAMS, in_flight, lend},
    scheduling_policy::SchedulingPolicy,
};

/// A policy that chooses the stream with the fewest submissions in flight. On a tie it takes the stream that was used
/// last, because that stream's state is in the CPU caches.
///
/// ```
/// use std::sync::Arc;
/// use cuda_async::{default_device, policy::LeastLoaded, prelude::*, runtime::set_default_policy};
/// let policy = LeastLoaded::new(&default_device()?)?;
/// assert_eq!(futures::executor::block_on(h2d([1u8]).then(to_host).schedule(&policy))?, [1]);
/// set_default_policy(Arc::new(policy)); // or for the process
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug)]
pub struct LeastLoaded {
    streams: Vec<Stream>,
    last: AtomicUsize,
}

impl LeastLoaded {
    /// Creates a policy on [`DEFAULT_STREAMS`] streams of `device`.
    ///
    /// # Errors
    /// The error of the device if it has no stream to lend.
    pub fn new(device: &Device) -> Result<Self> {
        Self::with_streams(device, DEFAULT_STREAMS)
    }

    /// Creates a policy on the given number of streams of `device`, at least one and at most
    /// [`MAX_POOL`](crate::policy::MAX_POOL).
    ///
    /// # Errors
    /// The error of the device if it has no stream to lend.
    pub fn with_streams(device: &Device, streams: usize) -> Result<Self> {
        Ok(Self { streams: lend(device, streams, 0)?, last: AtomicUsize::new(0) })
    }
}

impl SchedulingPolicy for LeastLoaded {
    fn place(&self) -> Result<Stream> {
        let last = self.last.load(Ordering::Relaxed).min(self.streams.len() - 1);
        let mut best = (last, self.streams[last].in_flight());
        for (index, stream) in self.streams.iter().enumerate() {
            if best.1 == 0 {
                break;
            }
            let load = stream.in_flight();
            if load < best.1 {
                best = (index, load);
            }
        }
        self.last.store(best.0, Ordering::Relaxed);
        Ok(self.streams[best.0].clone())
    }

    fn load(&self) -> u64 {
        in_flight(&self.streams)
    }
}
