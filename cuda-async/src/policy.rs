//! Scheduling policies: each chooses the stream on which an operation runs.
//!
//! | policy | chosen stream |
//! |---|---|
//! | [`StreamPoolRoundRobin`], the default | the next idle stream of a pool |
//! | [`SingleStream`] | always the same one |
//! | [`LeastLoaded`] | the one with the fewest submissions in flight |
//! | [`Priorities`] | an ordinary one; urgent operations have a pool of their own |
//! | [`Devices`] | one of several devices |
//! | a type of your own | see [`SchedulingPolicy`] |
//!
//! A policy decides about concurrency, never about correctness: the library orders uses of a buffer on several streams.
//!
//! ```
//! use cuda_async::{policy::LeastLoaded, prelude::*};
//! let policy = LeastLoaded::new(&cuda_async::default_device()?)?;
//! let first = h2d([1u8]).then(to_host).schedule(&policy);
//! let second = h2d([2u8]).then(to_host).schedule(&policy); // at the same time
//! assert_eq!((first.wait()?, second.wait()?), (vec![1], vec![2]));
//! # Ok::<(), cuda_async::Error>(())
//! ```
// This file uses `cuda-core` only. `runtime` holds the default policy and the policies of devices, and `run` asks them.
// A typical call goes from `SchedulingPolicy::place` to a stream of `cuda-core`.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use cuda_core::{Device, Error, Result, Stream};

/// A policy that chooses the stream on which an operation runs. Any thread may call it at any time.
#[diagnostic::on_unimplemented(
    note = "the policy for one stream of a device is `SingleStream::new(&device)?`"
)]
pub trait SchedulingPolicy: Send + Sync {
    /// Returns the stream for the next operation.
    ///
    /// # Errors
    /// The error of the device if it has no stream to lend.
    fn place(&self) -> Result<Stream>;

    /// Returns the number of submissions in flight on the policy's streams. [`Devices`]
    /// compares it. A policy that does not count returns 0.
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

impl<P: SchedulingPolicy + ?Sized> SchedulingPolicy for &P {
    fn place(&self) -> Result<Stream> {
        (**self).place()
    }

    fn load(&self) -> u64 {
        (**self).load()
    }
}

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
    /// [`MAX_POOL`].
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

/// Two pools of streams: one of high priority for urgent operations, and one of default priority. Used as a policy, it
/// chooses from the pool of default priority.
///
/// The device does not interrupt a running kernel. The forks of an operation use streams of the operation's priority. A
/// device without priorities gives both pools the same priority.
///
/// ```
/// use cuda_async::{default_device, policy::Priorities, prelude::*};
/// let priorities = Priorities::new(&default_device()?)?;
/// let bulk = h2d(vec![0u8; 1 << 20]).schedule(&priorities);
/// let urgent = h2d(vec![1u8]).then(to_host).schedule(priorities.high());
/// assert_eq!(futures::executor::block_on(urgent)?, [1]);
/// futures::executor::block_on(bulk)?;
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug)]
pub struct Priorities {
    high: StreamPoolRoundRobin,
    low: StreamPoolRoundRobin,
}

impl Priorities {
    /// Creates the pools, each with [`DEFAULT_STREAMS`] streams of `device`. One has the device's highest priority, the
    /// other the default priority.
    ///
    /// # Errors
    /// The error of the device if it has no stream to lend.
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Self {
            // The device takes its nearest priority.
            high: StreamPoolRoundRobin::with_priority(device, DEFAULT_STREAMS, i32::MIN)?,
            low: StreamPoolRoundRobin::new(device)?,
        })
    }

    /// Returns the pool for urgent operations.
    pub fn high(&self) -> &StreamPoolRoundRobin {
        &self.high
    }

    /// Returns the pool for all other operations.
    pub fn low(&self) -> &StreamPoolRoundRobin {
        &self.low
    }
}

impl SchedulingPolicy for Priorities {
    fn place(&self) -> Result<Stream> {
        self.low.place()
    }

    fn load(&self) -> u64 {
        self.high.load() + self.low.load()
    }
}

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

/// A policy that spreads operations over several devices, each with its own policy. An operation stays on one device,
/// and its input buffers must be on that device.
///
/// ```
/// use cuda_async::{Device, cuda_cpu::CpuProvider, open_blocking, policy::Devices, prelude::*};
/// let (first, second) = (open_blocking("cpu")?, Device::open(&CpuProvider::default(), 0)?);
/// let both = Devices::in_turn([first, second])?;
/// assert_eq!(futures::executor::block_on(h2d([1u8]).then(to_host).schedule(&both))?, [1]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub struct Devices {
    policies: Vec<Arc<dyn SchedulingPolicy>>,
    /// The number of choices so far if `by_load` is false, else the index of the policy chosen last.
    cursor: AtomicUsize,
    by_load: bool,
}

impl Devices {
    /// Creates a policy that uses the devices in turn, with [`LeastLoaded`] on each.
    ///
    /// # Errors
    /// The error of a device; [`Error::NoDevice`] if there is none.
    pub fn in_turn(devices: impl IntoIterator<Item = Device>) -> Result<Self> {
        Self::in_turn_over(policies(devices)?)
    }

    /// Creates a policy that uses the device with the fewest submissions in flight, with [`LeastLoaded`] on each. On a
    /// tie it takes the device that was used last.
    ///
    /// # Errors
    /// The errors of [`in_turn`](Devices::in_turn).
    pub fn least_loaded(devices: impl IntoIterator<Item = Device>) -> Result<Self> {
        Self::least_loaded_over(policies(devices)?)
    }

    /// Creates a policy that uses the given policies in turn.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is none.
    pub fn in_turn_over(policies: Vec<Arc<dyn SchedulingPolicy>>) -> Result<Self> {
        Self::over(policies, false)
    }

    /// Creates a policy that uses the given policy with the smallest [`load`](SchedulingPolicy::load).
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is none.
    pub fn least_loaded_over(policies: Vec<Arc<dyn SchedulingPolicy>>) -> Result<Self> {
        Self::over(policies, true)
    }

    fn over(policies: Vec<Arc<dyn SchedulingPolicy>>, by_load: bool) -> Result<Self> {
        if policies.is_empty() {
            let available = "none, the list of devices is empty; pass at least one".into();
            return Err(Error::NoDevice { address: "any".into(), available });
        }
        Ok(Self { policies, cursor: AtomicUsize::new(0), by_load })
    }

    fn next_in_turn(&self) -> usize {
        self.cursor.fetch_add(1, Ordering::Relaxed) % self.policies.len()
    }

    fn next_by_load(&self) -> usize {
        let last = self.cursor.load(Ordering::Relaxed);
        let loads = self.policies.iter().map(|policy| policy.load()).enumerate();
        let best = loads.min_by_key(|(index, load)| (*load, *index != last));
        let index = best.map_or(0, |(index, _)| index);
        self.cursor.store(index, Ordering::Relaxed);
        index
    }
}

fn policies(devices: impl IntoIterator<Item = Device>) -> Result<Vec<Arc<dyn SchedulingPolicy>>> {
    let policy = |device| Ok(Arc::new(LeastLoaded::new(&device)?) as Arc<dyn SchedulingPolicy>);
    devices.into_iter().map(policy).collect()
}

impl SchedulingPolicy for Devices {
    fn place(&self) -> Result<Stream> {
        let index = if self.by_load { self.next_by_load() } else { self.next_in_turn() };
        self.policies[index].place()
    }

    fn load(&self) -> u64 {
        self.policies.iter().map(|policy| policy.load()).sum()
    }
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Devices({})", self.policies.len())
    }
}

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
