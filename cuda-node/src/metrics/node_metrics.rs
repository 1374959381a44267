//! The metrics that the supervisor counts itself. The lease table counts the rest.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use cuda_lease::wire::Status;
use parking_lot::Mutex;

use super::{Histogram, Traffic};

/// The times of one way to run work. Three parts of the time between a request and its reply.
#[derive(Debug, Default, Clone, Copy)]
pub struct Path {
    /// From the arrival of an operation to its submission on the device.
    pub queue: Histogram,
    /// On the network.
    pub wire: Histogram,
    /// From the submission to the completion.
    pub device: Histogram,
}

/// The latencies of a node.
#[derive(Debug, Default, Clone, Copy)]
pub struct Latencies {
    /// From a request for a lease to its grant. Requests that were refused do not count.
    pub admission: Histogram,
    /// Operations of sessions. `wire` is the round trip that QUIC measures.
    pub session: Path,
    /// Stateless submits. `wire` is the time from the reply to its acknowledgement.
    pub submit: Path,
}

/// The metrics of a node.
#[derive(Debug, Default)]
pub struct NodeMetrics {
    pub(super) traffic: Traffic,
    accepted: AtomicU64,
    closed: AtomicU64,
    resumed: AtomicU64,
    submits: Mutex<BTreeMap<Status, u64>>,
    latencies: Mutex<Latencies>,
}

/// A connection, counted until this value is dropped.
#[derive(Debug)]
pub struct Connected(Arc<NodeMetrics>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Relaxed);
    }
}

impl NodeMetrics {
    /// Returns the totals of all leases.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Counts a connection until the returned value is dropped.
    #[must_use]
    pub fn connected(self: &Arc<Self>) -> Connected {
        self.accepted.fetch_add(1, Relaxed);
        Connected(self.clone())
    }

    /// Returns the number of all connections so far, and of those that are open.
    pub fn connections(&self) -> (u64, u64) {
        // In this order, because a connection is accepted before it is closed.
        let closed = self.closed.load(Relaxed);
        let accepted = self.accepted.load(Relaxed);
        (accepted, accepted.saturating_sub(closed))
    }

    /// Counts a session that a new connection resumed.
    pub fn resumed(&self) {
        self.resumed.fetch_add(1, Relaxed);
    }

    /// Returns the number of sessions that new connections resumed.
    pub fn resumptions(&self) -> u64 {
        self.resumed.load(Relaxed)
    }

    /// Counts a stateless submit.
    pub fn submitted(&self, status: Status) {
        *self.submits.lock().entry(status).or_default() += 1;
    }

    /// Returns the number of stateless submits by status.
    pub fn submits(&self) -> BTreeMap<Status, u64> {
        self.submits.lock().clone()
    }

    /// Adds a time to the histogram that `of` chooses.
    pub fn record(&self, time: Duration, of: impl FnOnce(&mut Latencies) -> &mut Histogram) {
        of(&mut self.latencies.lock()).record(time);
    }

    /// Adds the times of a session that its worker has measured.
    pub fn merge(&self, queue: &Histogram, device: &Histogram) {
        let mut latencies = self.latencies.lock();
        latencies.session.queue.merge(queue);
        latencies.session.device.merge(device);
    }

    /// Returns the latencies.
    pub fn latencies(&self) -> Latencies {
        *self.latencies.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_connection_stays_in_the_total() {
        let metrics = Arc::new(NodeMetrics::default());
        let (one, two) = (metrics.connected(), metrics.connected());
        drop(one);
        assert_eq!(metrics.connections(), (2, 1));
        drop(two);
        assert_eq!(metrics.connections(), (2, 0));
    }
}
