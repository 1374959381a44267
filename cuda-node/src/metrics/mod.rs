//! Counters and latencies of a node, as OpenMetrics text and as JSON for the status page.
//!
//! This folder uses `wire` and no other folder of the node, no device and no network. Workers and the supervisor count
//! with [`Traffic`] and [`Histogram`] where the events happen. The supervisor keeps one [`NodeMetrics`] and makes a
//! [`Snapshot`] for each request to the [status page](super::status). [`open_metrics`] writes it as text.

mod exposition;
mod histogram;
mod meter;
mod snapshot;

pub use exposition::{CONTENT_TYPE, open_metrics, status_label};
pub use histogram::Histogram;
pub use meter::{Connected, Latencies, Meter, NodeMetrics, OPERATIONS, Path, Tally, Traffic};
pub use snapshot::{DeviceStatus, LatencyStatus, LeaseStatus, Snapshot, TenantStatus, Totals};
