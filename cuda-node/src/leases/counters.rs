//! Totals for metrics.

use std::collections::BTreeMap;

use cuda_lease::wire::Status;

use super::lease::Cause;

/// Totals since the start of the table. Repeated requests with the nonce of an earlier one are not counted.
///
/// `requests` is the sum of `granted`, all of `refused`, `cancelled`, and the requests that wait. `granted` is the sum
/// of the causes and of the leases whose end has not begun. It is also the sum of `ended` and of all present leases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Requests.
    pub requests: u64,
    /// Requests that had to wait.
    pub queued: u64,
    /// Requests that were withdrawn while they waited.
    pub cancelled: u64,
    /// Requests that got a lease.
    pub granted: u64,
    /// Requests that got no lease, by status.
    pub refused: BTreeMap<Status, u64>,
    /// Renewals.
    pub renewed: u64,
    /// Leases that their clients freed.
    pub freed: u64,
    /// Leases that expired.
    pub expired: u64,
    /// Leases that were revoked by the operator.
    pub revoked: u64,
    /// Leases that were preempted by a request of higher priority.
    pub preempted: u64,
    /// Leases that used more memory than they were charged with.
    pub over_memory: u64,
    /// Leases whose worker did not start in time.
    pub start_timed_out: u64,
    /// Leases whose worker died.
    pub workers_died: u64,
    /// Leases whose client had no connection for longer than the reconnect window.
    pub disconnected: u64,
    /// Leases that ended because their slot was fenced.
    pub fenced: u64,
    /// Leases that have ended, by any cause.
    pub ended: u64,
    /// Times that a slot was fenced.
    pub fences: u64,
}

impl Counters {
    pub(super) fn refuse(&mut self, status: Status) {
        *self.refused.entry(status).or_default() += 1;
    }

    pub(super) fn ending(&mut self, cause: &Cause) {
        let counter = match cause {
            Cause::Freed => &mut self.freed,
            Cause::Expired => &mut self.expired,
            Cause::Revoked { .. } => &mut self.revoked,
            Cause::Preempted { .. } => &mut self.preempted,
            Cause::OverMemory { .. } => &mut self.over_memory,
            Cause::StartTimedOut => &mut self.start_timed_out,
            Cause::WorkerDied => &mut self.workers_died,
            Cause::Disconnected => &mut self.disconnected,
            Cause::Fenced => &mut self.fenced,
        };
        *counter += 1;
    }

    /// The number of leases whose end has begun.
    pub fn endings(&self) -> u64 {
        self.freed
            + self.expired
            + self.revoked
            + self.preempted
            + self.over_memory
            + self.start_timed_out
            + self.workers_died
            + self.disconnected
            + self.fenced
    }

    /// The number of requests that got no lease.
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }
}
