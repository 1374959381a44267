//! The metrics of the server in the format of Prometheus.

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Upper bounds of the latency buckets, in seconds.
const LATENCIES: [f64; 8] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0];

/// The metrics. Clones share the same counts.
#[derive(Clone)]
pub(super) struct Metrics {
    pub(super) requests: Counter,
    pub(super) refused: Counter,
    pub(super) batches: Counter,
    pub(super) queue: Gauge,
    pub(super) latency: Histogram,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let latency = Histogram::new(LATENCIES);
        let (requests, refused, batches, queue) = Default::default();
        Self { requests, refused, batches, queue, latency }
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub(super) fn text(&self) -> Result<String, std::fmt::Error> {
        let Self { requests, refused, batches, queue, latency } = self.clone();
        let mut registry = Registry::with_prefix("digits");
        registry.register("requests", "Requests with valid images", requests);
        registry.register("refused", "Requests refused because the queue was full", refused);
        registry.register("batches", "Batches that ran on the device", batches);
        registry.register("queue_length", "Requests that wait for a batch", queue);
        registry.register("latency_seconds", "Time from request to response", latency);
        let mut text = String::new();
        encode(&mut text, &registry).map(|()| text)
    }
}
