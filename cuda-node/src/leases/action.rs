//! The outputs of the table.

use std::time::Duration;

use super::{
    ids::{LeaseId, RequestId, SlotId},
    lease::Cause,
    request::Refusal,
};

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
    /// [`worker_died`](super::LeaseTable::worker_died).
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
