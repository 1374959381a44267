//! The metrics of the server in the format of OpenMetrics.

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;

/// Upper bounds of the latency buckets, in seconds.
const LATENCIES: [f64; 9] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Upper bounds of the buckets of batch sizes, in requests.
const SIZES: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// The outcome of a request for digits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Answered,
    Malformed,
    /// Refused: the queue was full, or the server was not ready.
    Refused,
    TimedOut,
    Failed,
    /// The client closed the connection first.
    Cancelled,
}

impl Outcome {
    const ALL: [Self; 6] = [
        Self::Answered,
        Self::Malformed,
        Self::Refused,
        Self::TimedOut,
        Self::Failed,
        Self::Cancelled,
    ];

    fn label(self) -> [(&'static str, &'static str); 1] {
        let name = match self {
            Self::Answered => "answered",
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        };
        [("outcome", name)]
    }
}

/// The metrics. Clones share the same counts.
#[derive(Clone)]
pub(crate) struct Metrics {
    requests: Family<[(&'static str, &'static str); 1], Counter>,
    in_progress: Gauge,
    latency: Histogram,
    /// Requests in a batch that went to the device.
    pub(crate) batches: Histogram,
    /// Requests that were dropped from their batch before it went to the device.
    pub(crate) dropped: Counter,
    pub(crate) queue: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) device_memory: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let requests = Family::default();
        for outcome in Outcome::ALL {
            // The series exist from the start, with the value 0.
            drop(requests.get_or_create(&outcome.label()));
        }
        Self {
            requests,
            in_progress: Gauge::default(),
            latency: Histogram::new(LATENCIES),
            batches: Histogram::new(SIZES),
            dropped: Counter::default(),
            queue: Gauge::default(),
            connections: Gauge::default(),
            device_memory: Gauge::default(),
        }
    }

    /// Starts the record of a request. It counts as cancelled if the record is dropped without an outcome.
    pub(crate) fn request(&self) -> Record<'_> {
        self.in_progress.inc();
        Record { metrics: self, start: Instant::now(), outcome: Outcome::Cancelled }
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let metrics = self.clone();
        let mut registry = Registry::with_prefix("digits");
        registry.register("requests", "Requests for digits by their outcome", metrics.requests);
        let begun = "Requests for digits that have begun and not ended";
        registry.register("requests_in_progress", begun, metrics.in_progress);
        registry.register("latency_seconds", "Time from request to response", metrics.latency);
        registry.register("batch_requests", "Requests in a batch on the device", metrics.batches);
        let dropped = "Requests dropped from a batch before it went to the device";
        registry.register("dropped", dropped, metrics.dropped);
        registry.register("queue_length", "Requests that wait for a batch", metrics.queue);
        registry.register("connections", "Open connections", metrics.connections);
        let memory = "Device memory in use by this server";
        registry.register("device_memory_bytes", memory, metrics.device_memory);
        let mut text = String::new();
        encode(&mut text, &registry).map(|()| text)
    }
}

/// The record of one request. Dropping it counts the request.
pub(crate) struct Record<'a> {
    metrics: &'a Metrics,
    start: Instant,
    outcome: Outcome,
}

impl Record<'_> {
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        self.metrics.requests.get_or_create(&self.outcome.label()).inc();
        self.metrics.in_progress.dec();
        self.metrics.latency.observe(self.start.elapsed().as_secs_f64());
    }
}
