//! Measures whether a graph of a window pays.
//!
//! A graph saves the time in which the host enqueues the nodes one by one. That time matters if the device waits for the
//! host. If the kernels take longer, the host is ahead of the device, and a graph only delays the first kernel. So both
//! times are measured while the nodes are enqueued one by one.

use std::time::Instant;

use crate::{
    cuda::{
        context::{Bound, Primary, Reclaimable},
        driver::{
            api::{EVENT_DEFAULT, EventHandle, StreamHandle},
            status::Failed,
        },
    },
    protocol::Result,
};

/// The number of passes. The smallest times count, because other threads may delay a pass.
const PASSES: u32 = 3;

/// The time that the last kernel takes after the host has enqueued it, if the device has waited for it.
const LATENCY: u64 = 5_000;

/// The longest time a kernel may take on average for a graph to pay, whatever the host needs: a host that waits for a
/// full queue seems slow.
const MAX_NODE: u64 = 8_000;

/// Measures one window.
pub(super) struct Measure {
    nodes: u64,
    timer: Timer,
    /// The host's time of the pass that was not read yet.
    pending: Option<u64>,
    passes: u32,
    /// In nanoseconds.
    host: u64,
    device: u64,
}

impl Measure {
    pub(super) fn new(nodes: usize, primary: &'static Primary, bound: &Bound) -> Result<Self> {
        let (nodes, timer) = (nodes as u64, Timer::new(primary, bound)?);
        Ok(Self { nodes, timer, pending: None, passes: 0, host: u64::MAX, device: u64::MAX })
    }

    /// Enqueues the nodes, and measures them if the last measurement was read.
    pub(super) fn pass(
        &mut self,
        stream: StreamHandle,
        bound: &Bound,
        enqueue: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if self.pending.is_some() {
            return enqueue();
        }
        self.timer.begin(stream, bound)?;
        let begun = Instant::now();
        enqueue()?;
        let host = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.timer.end(stream, bound)?;
        self.pending = Some(host);
        Ok(())
    }

    /// Whether a graph pays, if enough passes were measured and are complete.
    pub(super) fn verdict(&mut self, bound: &Bound) -> Option<bool> {
        let device = self.timer.elapsed(bound).filter(|_| self.pending.is_some())?;
        self.host = self.host.min(self.pending.take()?);
        self.device = self.device.min(device);
        self.passes += 1;
        (self.passes >= PASSES).then(|| pays(self.nodes, self.host, self.device))
    }
}

/// Whether the device waits for the host. Times are in nanoseconds.
fn pays(nodes: u64, host: u64, device: u64) -> bool {
    let host_bound = device <= host.saturating_add(host / 4).saturating_add(LATENCY);
    host_bound && device <= nodes.saturating_mul(MAX_NODE)
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
        for event in self.0.into_iter().filter(|it| *it != EventHandle::NULL) {
            // SAFETY: the timer was dropped, so no thread uses the event.
            _ = unsafe { primary.api.event_destroy(event) };
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::pays;

    #[test]
    fn graph_pays_only_where_the_device_waits_for_the_host() {
        // Kernels of 1 us, enqueued in 3 us each.
        assert!(pays(10, 30_000, 33_000));
        assert!(pays(3, 9_000, 12_000));
        // Kernels of 20 us.
        assert!(!pays(3, 9_000, 62_000));
        assert!(!pays(100, 300_000, 2_000_000));
        // The host waited for a full queue.
        assert!(!pays(10, 200_000, 210_000));
    }
}
