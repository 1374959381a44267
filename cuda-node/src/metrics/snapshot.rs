//! The state of a node at one time, for the exposition and for the page.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Histogram, Latencies, OPERATIONS};
use crate::process::SandboxReport;

/// The state of a node at one time. It has no tokens, keys or addresses of clients.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Snapshot {
    /// The time since the start of the node in milliseconds.
    pub uptime_ms: u64,
    /// The devices.
    pub devices: Vec<DeviceStatus>,
    /// The leases, in the order of their grants.
    pub leases: Vec<LeaseStatus>,
    /// Leases of tenants that the quotas name. The last entry, without a name, is for all other tenants.
    pub tenants: Vec<TenantStatus>,
    /// Requests for a lease that wait.
    pub queue: usize,
    /// Leases with a session.
    pub sessions: usize,
    /// Open connections.
    pub connections: u64,
    /// Totals since the start of the node.
    pub totals: Totals,
    /// Summaries of the latencies.
    pub latency: Vec<LatencyStatus>,
    /// The latencies themselves.
    #[serde(skip)]
    pub latencies: Latencies,
}

/// A device.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DeviceStatus {
    /// The name in requests, such as `cuda:0`.
    pub name: String,
    /// The product name.
    pub model: String,
    /// The memory that leases may use, in bytes.
    pub capacity: u64,
    /// The memory that leases are charged with, in bytes.
    pub allocated: u64,
    /// The number of leases.
    pub leases: usize,
    /// The number of leases that the device may have.
    pub max_leases: u32,
    /// Spare workers that are ready.
    pub spares: usize,
    /// Whether the device is out of service.
    pub fenced: bool,
    /// The parts of the sandbox of its workers. `None` if workers are threads of the node.
    pub sandbox: Option<SandboxReport>,
}

/// A lease.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LeaseStatus {
    /// The id.
    pub id: u64,
    /// The tenant: the common name of its certificate.
    pub tenant: String,
    /// The name of the device.
    pub device: String,
    /// `shared`, `session` or `device`.
    pub class: &'static str,
    /// `granted`, `starting`, `active`, `draining` or `killing`.
    pub state: &'static str,
    /// The cause of the end, once it has begun.
    pub cause: Option<String>,
    /// The device memory in use at the last report of the worker, in bytes.
    pub memory_used: u64,
    /// The quota in bytes.
    pub memory: u64,
    /// The time since the grant in milliseconds.
    pub age_ms: u64,
    /// The time until the lease expires in milliseconds. `None` once its end has begun.
    pub left_ms: Option<u64>,
    /// Whether its client is connected.
    pub connected: bool,
    /// The operations that were passed to the worker.
    pub operations: u64,
    /// The bytes of uploads.
    pub uploaded_bytes: u64,
    /// The bytes of downloads and outputs.
    pub output_bytes: u64,
    /// The submissions that were not known to be complete at the last report of the worker.
    pub backlog: u64,
    /// The host memory that the worker held for them, in bytes.
    pub backlog_bytes: u64,
}

/// The leases of a tenant that the quotas name, or of all others.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TenantStatus {
    /// The name; empty for all tenants that the quotas do not name.
    pub name: String,
    /// The number of leases.
    pub leases: usize,
    /// The sum of their quotas in bytes.
    pub memory: u64,
    /// The sum of their backlogs.
    pub backlog: u64,
    /// The sum of the host memory of their backlogs, in bytes.
    pub backlog_bytes: u64,
}

/// Leases whose end has begun, by reason.
pub type Ended = BTreeMap<&'static str, u64>;

/// Requests for a lease that were refused, by status.
pub type Refusals = BTreeMap<String, u64>;

/// Stateless submits by status.
pub type SubmitCounts = BTreeMap<String, u64>;

/// Totals since the start of a node.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Totals {
    /// Leases that were granted.
    pub acquired: u64,
    /// Leases whose end has begun.
    pub ended: Ended,
    /// Requests that were refused.
    pub refused: Refusals,
    /// Renewals.
    pub renewed: u64,
    /// Connections.
    pub connections: u64,
    /// Sessions that a new connection resumed.
    pub resumed: u64,
    /// Operations by kind, in the order of [`OPERATIONS`].
    #[serde(serialize_with = "sum")]
    pub operations: [u64; OPERATIONS.len()],
    /// Operations that failed or were skipped.
    pub failed: u64,
    /// Faults of kernels.
    pub faults: u64,
    /// Bytes of uploads.
    pub uploaded_bytes: u64,
    /// Bytes of downloads and outputs.
    pub output_bytes: u64,
    /// Stateless submits.
    pub submits: SubmitCounts,
}

fn sum<S: serde::Serializer>(
    operations: &[u64; OPERATIONS.len()],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(operations.iter().sum())
}

/// A summary of a latency.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct LatencyStatus {
    /// The name.
    pub name: &'static str,
    /// The number of samples.
    pub count: u64,
    /// An upper bound of the median in seconds.
    pub p50: Option<f64>,
    /// An upper bound of the 99th percentile in seconds.
    pub p99: Option<f64>,
}

impl LatencyStatus {
    fn of(name: &'static str, histogram: &Histogram) -> Self {
        // JSON has no infinity, so a quantile beyond the last bucket is absent.
        let quantile = |q| histogram.quantile(q).filter(|bound| bound.is_finite());
        Self { name, count: histogram.count(), p50: quantile(0.5), p99: quantile(0.99) }
    }
}

impl Latencies {
    /// Returns the summary of each histogram.
    pub fn summaries(&self) -> Vec<LatencyStatus> {
        let Self { admission, session, submit } = self;
        [
            ("lease: admission", admission),
            ("session: queue", &session.queue),
            ("session: wire", &session.wire),
            ("session: device", &session.device),
            ("submit: queue", &submit.queue),
            ("submit: wire", &submit.wire),
            ("submit: device", &submit.device),
        ]
        .map(|(name, histogram)| LatencyStatus::of(name, histogram))
        .into()
    }
}
