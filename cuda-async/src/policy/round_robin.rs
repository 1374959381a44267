//! `StreamPoolRoundRobin`: chooses from a few streams in turn.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use cuda_core::{Device, Result, Stream};

use crate::policy::{
    pool::{DEFAULT_STREAMS, MAX_POOL},
    scheduling_policy::SchedulingPolicy,
};

/// The maximum number of streams of a policy that [`StreamPoolRoundRobin::new`] creates.
pub const MAX_STREAMS: usize = 16;

/// A policy that chooses from a few streams in turn. This is the default policy.
///
/// Chooses the stream that it chose last while that is known to be idle, because its state is in the CPU caches.
/// Otherwise it chooses the next idle stream, so that no operation waits behind a stuck stream while another one is
/// idle. If no stream is idle, it chooses the next one to which no other thread is submitting.
#[derive(Debug)]
pub struct StreamPoolRoundRobin {
    device: Device,
    priority: i32,
    /// The first `open` of them are filled.
    streams: Box<[OnceLock<Stream>]>,
    open: AtomicUsize,
    /// The index of the stream that was chosen last.
    last: AtomicUsize,
}

impl StreamPoolRoundRobin {
    /// Creates a policy on [`DEFAULT_STREAMS`] streams of `device`. The policy adds streams, up to [`MAX_STREAMS`],
    /// when other threads are submitting to all of them.
    ///
    /// # Errors
    /// The error of the device if it has no stream to lend.
    pub fn new(device: &Device) -> Result<Self> {
        Self::of(device, DEFAULT_STREAMS, MAX_STREAMS, 0)
    }

    /// Creates a policy on the given number of streams of `device`, at least one and at most [`MAX_POOL`].
    ///
    /// # Errors
    /// The error of the device if it has no stream to lend.
    pub fn with_streams(device: &Device, streams: usize) -> Result<Self> {
        Self::with_priority(device, streams, 0)
    }

    /// Does the same as [`with_streams`](Self::with_streams), on streams with a priority. Lower numbers run first, and
    /// the default is 0. A device uses the nearest priority that it has.
    ///
    /// # Errors
    /// The error of the device if it has no stream to lend.
    pub fn with_priority(device: &Device, streams: usize, priority: i32) -> Result<Self> {
        Self::of(device, streams, streams, priority)
    }

    fn of(device: &Device, open: usize, most: usize, priority: i32) -> Result<Self> {
        let (open, most) = (open.clamp(1, MAX_POOL), most.clamp(1, MAX_POOL));
        let streams: Box<[_]> = (0..most).map(|_| OnceLock::new()).collect();
        for place in &streams[..open] {
            let _ = place.set(device.lend_idle_stream(priority)?);
        }
        let (device, open, last) = (device.clone(), AtomicUsize::new(open), AtomicUsize::new(0));
        Ok(Self { device, priority, streams, open, last })
    }

    fn open_streams(&self) -> impl Iterator<Item = &Stream> {
        self.streams.iter().filter_map(OnceLock::get)
    }

    /// Returns the best stream after index `last`.
    fn rotate(&self, last: usize) -> Result<&Stream> {
        let open = self.open.load(Ordering::Acquire);
        let free = |stream: &Stream| !stream.is_contended();
        let idle = |stream: &Stream| stream.in_flight() == 0 && free(stream);
        let found = self.next_from(last, open, idle).or_else(|| self.next_from(last, open, free));
        match found {
            Some((index, stream)) => {
                self.last.store(index, Ordering::Relaxed);
                Ok(stream)
            }
            None => {
                self.last.store((last + 1) % open, Ordering::Relaxed);
                self.grow((last + 1) % open)
            }
        }
    }

    fn next_from(
        &self,
        last: usize,
        open: usize,
        fits: impl Fn(&Stream) -> bool,
    ) -> Option<(usize, &Stream)> {
        let behind = (1..=open).map(|step| (last + step) % open);
        let mut streams = behind.filter_map(|index| Some((index, self.streams[index].get()?)));
        streams.find(|(_, stream)| fits(stream))
    }

    /// Adds a stream if the limit allows it. Otherwise returns the stream at `next`.
    #[cold]
    fn grow(&self, next: usize) -> Result<&Stream> {
        let open = self.open.load(Ordering::Acquire);
        let index = if open < self.streams.len() { open } else { next };
        let stream = match self.streams[index].get() {
            Some(stream) => stream,
            None => {
                let lent = self.device.lend_idle_stream(self.priority)?;
                self.streams[index].get_or_init(|| lent)
            }
        };
        self.open.fetch_max(index + 1, Ordering::AcqRel);
        Ok(stream)
    }
}

impl SchedulingPolicy for StreamPoolRoundRobin {
    fn place(&self) -> Result<Stream> {
        let last = self.last.load(Ordering::Relaxed);
        let warm = self.streams.get(last).and_then(OnceLock::get);
        match warm.filter(|stream| stream.in_flight() == 0 && !stream.is_contended()) {
            Some(stream) => Ok(stream.clone()),
            None => self.rotate(last).cloned(),
        }
    }

    fn load(&self) -> u64 {
        self.open_streams().map(Stream::in_flight).sum()
    }
}
