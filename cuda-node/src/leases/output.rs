//! The outputs of the table: actions for the supervisor, descriptions of leases and slots, and totals for metrics.

use std::{collections::BTreeMap, time::Duration};

use cuda_lease::wire::Status;

use super::{
    lease::{Cause, LeaseState},
    request::{Exclusivity, LeaseId, Refusal, RequestId, SlotId},
};
use crate::quotas::Tenant;

/// A step that the supervisor performs. The actions of one lease arrive in order, and none arrives after its end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Answer a queued request: it has this lease. If its client has disconnected, free the lease.
    Admitted {
        /// The request.
        request: RequestId,
        /// Its lease.
        lease: LeaseId,
    },
    /// Answer a queued request: it gets no lease.
    Refused {
        /// The request.
        request: RequestId,
        /// The answer.
        refusal: Refusal,
    },
    /// Assign a worker to the lease. Report [`worker_ready`](super::LeaseTable::worker_ready) or
    /// [`worker_not_started`](super::LeaseTable::worker_not_started).
    AssignWorker {
        /// The lease.
        lease: LeaseId,
        /// The slot of the lease.
        slot: SlotId,
        /// The device memory that the client may allocate, in bytes.
        quota: u64,
    },
    /// Let the worker run the work of this session. Report
    /// [`session_idle`](super::LeaseTable::session_idle) when the session has no more work.
    RunSession {
        /// The lease of the session.
        lease: LeaseId,
    },
    /// Start no more work of this session. Report [`session_paused`](super::LeaseTable::session_paused) when its work
    /// in flight is complete, or `session_idle` if it then has no more work.
    PauseSession {
        /// The lease of the session.
        lease: LeaseId,
    },
    /// Announce to the client that the lease ends after this time.
    AnnounceRevocation {
        /// The lease.
        lease: LeaseId,
        /// The cause.
        cause: Cause,
        /// The time until the end.
        notice: Duration,
    },
    /// Refuse new work of this lease with the status of the cause. Work in flight may complete, and the client may
    /// read results.
    StopAdmission {
        /// The lease.
        lease: LeaseId,
        /// The cause of the end.
        cause: Cause,
    },
    /// Kill the worker, then verify that its memory is free, and report
    /// [`worker_gone`](super::LeaseTable::worker_gone). A worker that is dead already is verified and reported as well.
    KillWorker {
        /// The lease.
        lease: LeaseId,
    },
    /// Take the slot out of service, and alert the operator. The table admits nothing to it until
    /// [`unfence`](super::LeaseTable::unfence).
    Fence {
        /// The slot.
        slot: SlotId,
    },
}

impl Action {
    /// The lease that the action is about.
    pub fn lease(&self) -> Option<LeaseId> {
        match self {
            Action::Admitted { lease, .. }
            | Action::AssignWorker { lease, .. }
            | Action::RunSession { lease }
            | Action::PauseSession { lease }
            | Action::AnnounceRevocation { lease, .. }
            | Action::StopAdmission { lease, .. }
            | Action::KillWorker { lease } => Some(*lease),
            Action::Refused { .. } | Action::Fence { .. } => None,
        }
    }
}

/// A lease at the time of the last call to the table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseView<'a> {
    /// The lease.
    pub id: LeaseId,
    /// Its tenant.
    pub tenant: &'a Tenant,
    /// Its slot.
    pub slot: SlotId,
    /// The name of its slot.
    pub slot_name: &'a str,
    /// The memory that the client may allocate, in bytes.
    pub quota: u64,
    /// The memory that the slot is charged with, in bytes: quota and reserve.
    pub charge: u64,
    /// The class of the lease.
    pub class: Exclusivity,
    /// The priority of its request.
    pub priority: i32,
    /// Its state.
    pub state: LeaseState,
    /// The cause of its end, once the end has begun.
    pub cause: Option<&'a Cause>,
    /// The time until it expires; `None` once its end has begun.
    pub remaining: Option<Duration>,
    /// Its generation.
    pub generation: u64,
    /// The rest of the notice period, if its end was announced.
    pub announced: Option<Duration>,
    /// Whether its client is connected.
    pub is_connected: bool,
    /// Whether its session has the turn. Always `false` for shared and device leases.
    pub is_running: bool,
}

/// A slot at the time of the last call to the table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotView<'a> {
    /// The slot.
    pub id: SlotId,
    /// Its name.
    pub name: &'a str,
    /// The memory that leases may use, in bytes.
    pub capacity: u64,
    /// The memory that is charged, in bytes. Includes ended leases of a fenced slot whose memory is not verified to be
    /// back.
    pub used: u64,
    /// The number of leases.
    pub leases: usize,
    /// The number of leases that it may have.
    pub max_leases: u32,
    /// Whether it is out of service.
    pub is_fenced: bool,
    /// The number of waiting requests that accept this slot.
    pub queued: usize,
}

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
    /// Leases whose worker was killed because it used more host memory than its limit.
    pub out_of_host_memory: u64,
    /// Leases whose worker did not start in time.
    pub start_timed_out: u64,
    /// Leases whose worker could not be started.
    pub not_started: u64,
    /// Leases whose worker died.
    pub workers_died: u64,
    /// Leases whose client had no connection for longer than the reconnect window.
    pub disconnected: u64,
    /// Leases that ended because their slot was fenced.
    pub fenced: u64,
    /// Leases of an earlier node that had no place on this one.
    pub no_place: u64,
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
            Cause::OutOfHostMemory { .. } => &mut self.out_of_host_memory,
            Cause::StartTimedOut => &mut self.start_timed_out,
            Cause::NotStarted { .. } => &mut self.not_started,
            Cause::WorkerDied => &mut self.workers_died,
            Cause::Disconnected => &mut self.disconnected,
            Cause::Fenced => &mut self.fenced,
            Cause::NoPlace => &mut self.no_place,
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
            + self.out_of_host_memory
            + self.start_timed_out
            + self.not_started
            + self.workers_died
            + self.disconnected
            + self.fenced
            + self.no_place
    }

    /// The number of requests that got no lease.
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }
}
