//! One lease: its terms, its state and its deadlines. Also the last leases that ended.

use std::{collections::VecDeque, fmt, time::Duration};

use cuda_lease::wire::Status;

use super::request::{LeaseId, LeaseRequest, Refusal, SlotId};
use crate::quotas::Tenant;

/// The state of a lease; [`leases`](super) has the transitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseState {
    /// The lease counts on its slot; no worker is assigned yet.
    Granted,
    /// The worker is starting.
    Starting,
    /// The client may use the lease.
    Active,
    /// No new work is admitted; work in flight may complete.
    Draining,
    /// The worker is being killed; its memory is not verified to be free yet.
    Killing,
}

/// The reason for the end of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The client freed the lease.
    Freed,
    /// The duration of the lease is over.
    Expired,
    /// The operator revoked the lease.
    Revoked {
        /// The operator's reason.
        reason: String,
    },
    /// A request of higher priority preempted the lease.
    Preempted {
        /// The priority of that request.
        priority: i32,
    },
    /// The worker used more memory than the slot was charged with: variables of modules, stacks of kernels, and the
    /// heap and the print buffer of the device do not come from the quota's pool.
    OverMemory {
        /// The bytes in use.
        used: u64,
        /// The bytes of the charge.
        charge: u64,
    },
    /// The kernel killed the worker, because it used more host memory than its limit.
    OutOfHostMemory {
        /// The limit in bytes.
        limit: u64,
    },
    /// The worker did not start in time.
    StartTimedOut,
    /// The worker could not be started.
    NotStarted {
        /// The reason.
        reason: String,
    },
    /// The worker died.
    WorkerDied,
    /// The client was disconnected for longer than the reconnect window.
    Disconnected,
    /// The slot was fenced.
    Fenced,
    /// The node started again, and this lease of the earlier one has no place on it: its device is gone, or is smaller.
    NoPlace,
}

impl Cause {
    /// The status for requests that name the lease afterwards.
    pub fn status(&self) -> Status {
        match self {
            Cause::Freed => Status::NotFound,
            Cause::Expired => Status::LeaseExpired,
            Cause::Revoked { .. }
            | Cause::Preempted { .. }
            | Cause::OverMemory { .. }
            | Cause::OutOfHostMemory { .. }
            | Cause::NoPlace => Status::Revoked,
            Cause::StartTimedOut | Cause::NotStarted { .. } => Status::Internal,
            Cause::WorkerDied | Cause::Disconnected => Status::Disconnected,
            Cause::Fenced => Status::Fenced,
        }
    }

    /// Whether work in flight gets time to complete: there may be some, and a client that reads its results.
    pub(super) fn has_grace(&self) -> bool {
        let has_none = matches!(
            self,
            Cause::Freed
                | Cause::OverMemory { .. }
                | Cause::OutOfHostMemory { .. }
                | Cause::WorkerDied
                | Cause::Disconnected
        );
        !has_none
    }

    /// The answer to a request that names a lease which ended for this cause.
    pub(crate) fn refusal(&self, lease: LeaseId) -> Refusal {
        Refusal::new(self.status(), format!("lease {lease} {self}; request a new lease"))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Freed => f.write_str("was freed"),
            Cause::Expired => f.write_str("has expired"),
            Cause::Revoked { reason } => write!(f, "was revoked: {reason}"),
            Cause::Preempted { priority } => {
                write!(f, "was preempted by a request of priority {priority}")
            }
            Cause::OverMemory { used, charge } => write!(
                f,
                "has ended: its worker used {used} bytes, the limit is {charge} bytes including variables of modules, \
                 stacks of kernels, the device's heap and its print buffer; request more memory"
            ),
            Cause::OutOfHostMemory { limit } => write!(
                f,
                "has ended: its worker ran out of host memory, the limit is {limit} bytes; load less code, and keep \
                 fewer uploads, downloads and submits in flight"
            ),
            Cause::StartTimedOut => f.write_str("has ended: its worker did not start in time"),
            Cause::NotStarted { reason } => {
                write!(f, "has ended: its worker did not start: {reason}")
            }
            Cause::WorkerDied => f.write_str("has ended: its worker died"),
            Cause::Disconnected => f.write_str(
                "has ended: its client had no connection for longer than the reconnect window",
            ),
            Cause::Fenced => f.write_str("has ended: its device was fenced"),
            Cause::NoPlace => f.write_str(
                "has ended: the node started again without its device, or with less capacity or fewer leases on it",
            ),
        }
    }
}

/// The position of a lease in its life. A deadline is `None` until the action that starts it was polled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    Granted,
    Starting { by: Duration },
    Active { since: Duration, until: Duration },
    Draining { until: Option<Duration>, cause: Cause },
    Killing { by: Option<Duration>, cause: Cause },
}

/// An announced end.
#[derive(Debug, Clone)]
pub(super) struct AnnouncedEnd {
    pub(super) cause: Cause,
    pub(super) length: Duration,
    /// The end of the notice period. `None` until `AnnounceRevocation` was polled.
    pub(super) until: Option<Duration>,
}

impl AnnouncedEnd {
    /// The rest of the notice period.
    pub(super) fn left(&self, now: Duration) -> Duration {
        self.until.map_or(self.length, |until| until.saturating_sub(now))
    }
}

/// The next event of a lease that only time causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// The worker is not ready.
    StartTimedOut,
    /// The duration of the lease is over.
    Expired,
    /// The end was announced, and the notice period is over.
    NoticePeriodOver,
    /// The reconnect window is over.
    Disconnected,
    /// The grace is over.
    GraceOver,
    /// The worker was not reported as exited.
    KillOverdue,
}

/// A lease, from its grant to the end of its worker.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) request: LeaseRequest,
    pub(super) slot: SlotId,
    /// The quota and the reserve of the slot, in bytes.
    pub(super) charge: u64,
    /// The requested duration in seconds, with the default instead of 0.
    pub(super) lease_secs: u32,
    pub(super) phase: Phase,
    /// The time for which it was active before the table had it. The clock of a table begins at 0, so `since` cannot be
    /// earlier.
    pub(super) earlier: Duration,
    pub(super) generation: u64,
    /// The previous generation is valid until this time.
    pub(super) overlap: Option<Duration>,
    pub(super) announced: Option<AnnouncedEnd>,
    /// The request that preempts the lease. It may have been withdrawn.
    pub(super) preempted_for: Option<LeaseRequest>,
    /// The time by which the client must be connected again.
    pub(super) reconnect_by: Option<Duration>,
}

impl Lease {
    pub(super) fn state(&self) -> LeaseState {
        match self.phase {
            Phase::Granted => LeaseState::Granted,
            Phase::Starting { .. } => LeaseState::Starting,
            Phase::Active { .. } => LeaseState::Active,
            Phase::Draining { .. } => LeaseState::Draining,
            Phase::Killing { .. } => LeaseState::Killing,
        }
    }

    /// The cause of the end, once it has begun.
    pub(super) fn cause(&self) -> Option<&Cause> {
        match &self.phase {
            Phase::Draining { cause, .. } | Phase::Killing { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// Whether the lease leaves its slot without further action, and no more than `notice` of its notice period is left.
    pub(super) fn leaves_within(&self, now: Duration, notice: Duration) -> bool {
        let is_short = |of: &AnnouncedEnd| of.left(now) <= notice;
        self.cause().is_some() || self.announced.as_ref().is_some_and(is_short)
    }

    /// The time until the lease expires. `None` once its end has started. The full duration while its worker is not
    /// ready.
    pub(super) fn remaining(&self, now: Duration) -> Option<Duration> {
        match self.phase {
            Phase::Granted | Phase::Starting { .. } => {
                Some(Duration::from_secs(self.lease_secs.into()))
            }
            Phase::Active { until, .. } => Some(until.saturating_sub(now)),
            _ => None,
        }
    }

    /// The earliest deadline and the event at it.
    pub(super) fn due(&self) -> Option<(Duration, Due)> {
        let own = match &self.phase {
            Phase::Granted => None,
            Phase::Starting { by } => Some((*by, Due::StartTimedOut)),
            Phase::Active { until, .. } => Some((*until, Due::Expired)),
            Phase::Draining { until, .. } => until.map(|until| (until, Due::GraceOver)),
            Phase::Killing { by, .. } => by.map(|by| (by, Due::KillOverdue)),
        };
        let killing = matches!(self.phase, Phase::Killing { .. });
        let reconnect = self.reconnect_by.filter(|_| !killing);
        let reconnect = reconnect.map(|by| (by, Due::Disconnected));
        let active = matches!(self.phase, Phase::Active { .. });
        let announced = self.announced.as_ref().filter(|_| active);
        let announced = announced.and_then(|of| of.until.map(|at| (at, Due::NoticePeriodOver)));
        [own, reconnect, announced].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

#[derive(Debug)]
struct Ended {
    lease: LeaseId,
    tenant: Tenant,
    nonce: [u8; 16],
    cause: Cause,
}

/// A bounded history. A lookup reads all of it, and only requests that match no present lease look something up.
#[derive(Debug, Default)]
pub(super) struct EndedLeases {
    last: VecDeque<Ended>,
}

impl EndedLeases {
    pub(super) fn add(
        &mut self,
        lease: LeaseId,
        tenant: Tenant,
        nonce: [u8; 16],
        cause: Cause,
        limit: usize,
    ) {
        self.last.push_back(Ended { lease, tenant, nonce, cause });
        while self.last.len() > limit {
            self.last.pop_front();
        }
    }

    pub(super) fn of_lease(&self, lease: LeaseId) -> Option<&Cause> {
        self.last.iter().find(|ended| ended.lease == lease).map(|ended| &ended.cause)
    }

    pub(super) fn of_nonce(&self, tenant: &Tenant, nonce: &[u8; 16]) -> Option<(LeaseId, &Cause)> {
        let of = |ended: &&Ended| ended.nonce == *nonce && ended.tenant == *tenant;
        self.last.iter().find(of).map(|ended| (ended.lease, &ended.cause))
    }
}
