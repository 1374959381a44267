//! Streams that a policy borrows from a device.

use cuda_core::{Device, Result, Stream};

/// The number of streams of a policy that is made with `new`. Only
/// [`StreamPoolRoundRobin::new`](crate::policy::StreamPoolRoundRobin::new) adds more.
pub const DEFAULT_STREAMS: usize = 4;

/// The maximum number of streams in one policy. Larger requests are reduced to it.
pub const MAX_POOL: usize = 128;

/// Borrows `streams` idle streams from the device: at least one, at most [`MAX_POOL`].
pub(super) fn lend(device: &Device, streams: usize, priority: i32) -> Result<Vec<Stream>> {
    (0..streams.clamp(1, MAX_POOL)).map(|_| device.lend_idle_stream(priority)).collect()
}

pub(super) fn in_flight(streams: &[Stream]) -> u64 {
    streams.iter().map(Stream::in_flight).sum()
}
