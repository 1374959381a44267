//! Measures a window, to decide whether a graph of it pays: whether it saves enough time.
//!
//! A graph saves two to four microseconds for each launch, and as much before the first kernel. If kernels take much
//! longer than that, the graph saves little, and its memory is better used for other windows. So the time of a window
//! on the device is measured while its nodes are enqueued one by one.

use cuda_core::protocol::Result;

use crate::{
    context::{Bound, Primary, Reclaimable},
    driver::{
        api::{EVENT_DEFAULT, EventHandle, StreamHandle},
        status::Failed,
    },
};

/// The number of samples. The smallest time counts, because other threads may delay a sample.
const SAMPLES: u32 = 3;

/// The longest time that a node may take on average, in nanoseconds, for a graph to pay. It includes the time in which
/// the device waits for the host, which is longer while many threads launch.
const MAX_NODE: u64 = 50_000;

/// Measures one window.
pub(super) struct Measure {
    nodes: u64,
    timer: Timer,
    /// Whether a sample was enqueued whose time was not read yet.
    is_pending: bool,
    samples: u32,
    /// The shortest time in nanoseconds.
    shortest: u64,
}

impl Measure {
    pub(super) fn new(nodes: usize, primary: &'static Primary, bound: &Bound) -> Result<Self> {
        let (nodes, timer) = (nodes as u64, Timer::new(primary, bound)?);
        Ok(Self { nodes, timer, is_pending: false, samples: 0, shortest: u64::MAX })
    }

    /// Enqueues the nodes, and measures them if the time of the last sample was read.
    pub(super) fn sample(
        &mut self,
        stream: StreamHandle,
        bound: &Bound,
        enqueue: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if self.is_pending {
            return enqueue();
        }
        self.timer.begin(stream, bound)?;
        enqueue()?;
        self.timer.end(stream, bound)?;
        self.is_pending = true;
        Ok(())
    }

    /// Whether a graph pays. `None` before enough samples are complete.
    pub(super) fn verdict(&mut self, bound: &Bound) -> Option<bool> {
        if !self.is_pending {
            return None;
        }
        let time = self.timer.elapsed(bound)?;
        self.is_pending = false;
        self.shortest = self.shortest.min(time);
        self.samples += 1;
        (self.samples >= SAMPLES).then(|| self.shortest <= self.nodes.saturating_mul(MAX_NODE))
    }
}

/// Two events with time stamps.
struct Timer {
    primary: &'static Primary,
    events: [EventHandle; 2],
}

impl Timer {
    fn new(primary: &'static Primary, _: &Bound) -> Result<Self> {
        let mut timer = Self { primary, events: [EventHandle::NULL; 2] };
        for event in &mut timer.events {
            // SAFETY: writes one handle; the context is bound.
            unsafe { primary.api.event_create(event, EVENT_DEFAULT) }
                .map_err(|failed| primary.error(failed))?;
        }
        Ok(timer)
    }

    fn begin(&self, stream: StreamHandle, bound: &Bound) -> Result<()> {
        self.record(self.events[0], stream, bound)
    }

    fn end(&self, stream: StreamHandle, bound: &Bound) -> Result<()> {
        self.record(self.events[1], stream, bound)
    }

    fn record(&self, event: EventHandle, stream: StreamHandle, _: &Bound) -> Result<()> {
        // SAFETY: the caller holds the stream, and the events live as long as this.
        unsafe { self.primary.api.event_record(event, stream) }
            .map_err(|failed| self.primary.error(failed))
    }

    /// The time between the events in nanoseconds, if the device has passed both.
    fn elapsed(&self, _: &Bound) -> Option<u64> {
        let ([begin, end], api) = (self.events, self.primary.api);
        let mut milliseconds = 0.0_f32;
        // SAFETY: the events live as long as this; writes one number.
        let read: Result<(), Failed> = unsafe {
            api.event_query(end).and_then(|()| api.event_elapsed(&mut milliseconds, begin, end))
        };
        read.ok().map(|()| (f64::from(milliseconds) * 1e6) as u64)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.primary.reclaim.put(Box::new(DroppedTimer(self.events)));
    }
}

/// The events of a timer that was dropped.
struct DroppedTimer([EventHandle; 2]);

impl Reclaimable for DroppedTimer {
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        _: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        for event in self.0.into_iter().filter(|event| *event != EventHandle::NULL) {
            // SAFETY: the timer was dropped, so no thread uses the event.
            _ = unsafe { primary.api.event_destroy(event) };
        }
        None
    }
}
