//! Requests for leases, the ids that they name, the answers to them, and the queue of those that wait.

use std::{fmt, time::Duration};

pub use cuda_lease::wire::Exclusivity;
use cuda_lease::wire::Status;
use thiserror::Error;

use crate::quotas::Tenant;

/// A request for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The tenant whose quotas apply.
    pub tenant: Tenant,
    /// Identifies the request: the same tenant and nonce never get a second lease. Chosen at random by the client.
    pub nonce: [u8; 16],
    /// The quota of the lease in bytes, at least 1. The lease gets exactly this much.
    pub min_vram: u64,
    /// The duration of the lease in seconds, from the time at which its worker is ready. 0 requests the default.
    pub lease_secs: u32,
    /// The other leases that may be on the slot.
    pub class: Exclusivity,
    /// The name of the slot. `None` accepts any slot.
    pub slot: Option<String>,
    /// The maximum wait in the queue. With 0, the request is refused immediately if there is no free capacity.
    pub wait: Duration,
    /// Requests of higher priority are served first. The normal priority is 0.
    pub priority: i32,
}

impl LeaseRequest {
    /// A request for a shared lease of any slot with the default duration, priority 0 and no wait.
    pub fn new(tenant: Tenant, nonce: [u8; 16], min_vram: u64) -> LeaseRequest {
        LeaseRequest {
            tenant,
            nonce,
            min_vram,
            lease_secs: 0,
            class: Exclusivity::Shared,
            slot: None,
            wait: Duration::ZERO,
            priority: 0,
        }
    }

    /// Whether the other request asks for the same lease. The wait may differ: a repeated request waits for less.
    pub(super) fn has_terms_of(&self, other: &LeaseRequest) -> bool {
        fn terms(of: &LeaseRequest) -> impl PartialEq + '_ {
            (of.min_vram, of.lease_secs, of.class, of.slot.as_deref(), of.priority)
        }
        terms(self) == terms(other)
    }
}

/// The answer to an admissible request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The request has this lease. Its worker may still be starting.
    Leased(LeaseId),
    /// The request waits. [`Action::Admitted`](super::Action::Admitted) or
    /// [`Action::Refused`](super::Action::Refused) follows.
    Queued {
        /// The id of the request in the actions that follow.
        request: RequestId,
        /// The number of requests that are served earlier.
        ahead: usize,
    },
}

/// The result of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// The generation of the lease from now on.
    pub generation: u64,
    /// The time until the lease expires.
    pub remaining: Duration,
}

/// A request that the table did not grant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{status}: {message}")]
pub struct Refusal {
    /// The reason as a code.
    pub status: Status,
    /// The event, the limit, and the remedy, as text.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(status: Status, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into() }
    }
}

/// Identifies a lease. A table never uses an id twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Identifies a queued request. A table never uses an id twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Identifies a slot: its index in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub usize);

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A request that waits for capacity.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) id: RequestId,
    pub(super) request: LeaseRequest,
    /// The requested duration in seconds, with the default instead of 0.
    pub(super) lease_secs: u32,
    /// The slot that the request names.
    pub(super) wanted: Option<SlotId>,
    /// The request is refused at this time.
    pub(super) until: Duration,
    /// The end of its reservation. `None` once that is over.
    pub(super) reserves_until: Option<Duration>,
}

impl Waiter {
    /// Whether the request names this slot or none.
    pub(super) fn accepts(&self, slot: SlotId) -> bool {
        self.wanted.is_none_or(|wanted| wanted == slot)
    }
}

/// The waiting requests: higher priorities first, within a priority in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiters: Vec<Waiter>,
}

impl Queue {
    pub(super) fn insert(&mut self, waiter: Waiter) {
        self.waiters.insert(self.index_for(&waiter), waiter);
    }

    /// The place that a new waiter would get.
    pub(super) fn index_for(&self, waiter: &Waiter) -> usize {
        let priority = waiter.request.priority;
        self.waiters.partition_point(|other| other.request.priority >= priority)
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Waiter> {
        self.waiters.get(index)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter()
    }

    pub(super) fn position(&self, id: RequestId) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.id == id)
    }

    /// Removes the waiter at this place.
    pub(super) fn take(&mut self, index: usize) -> Option<Waiter> {
        (index < self.waiters.len()).then(|| self.waiters.remove(index))
    }

    /// Removes the first waiter that satisfies the condition.
    pub(super) fn take_where(&mut self, condition: impl Fn(&Waiter) -> bool) -> Option<Waiter> {
        let index = self.waiters.iter().position(condition)?;
        self.take(index)
    }

    pub(super) fn of_nonce(&self, tenant: &Tenant, nonce: &[u8; 16]) -> Option<(usize, &Waiter)> {
        let of =
            |waiter: &Waiter| waiter.request.nonce == *nonce && waiter.request.tenant == *tenant;
        self.waiters.iter().enumerate().find(|(_, waiter)| of(waiter))
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        let reservations = self.waiters.iter().filter_map(|waiter| waiter.reserves_until);
        self.waiters.iter().map(|waiter| waiter.until).chain(reservations).min()
    }

    /// Ends the reservations that are over. Returns whether there were any.
    pub(super) fn end_reservations(&mut self, now: Duration) -> bool {
        let mut any = false;
        for waiter in &mut self.waiters {
            any |= waiter.reserves_until.take_if(|until| *until <= now).is_some();
        }
        any
    }

    /// Removes a request so that `tenant`, which has fewer waiting requests, gets its place: the last one of the tenant
    /// that has the most. Returns `None` if `tenant` would then have as many.
    pub(super) fn displace_for(&mut self, tenant: &Tenant) -> Option<Waiter> {
        let count =
            |of: &Tenant| self.waiters.iter().filter(|waiter| waiter.request.tenant == *of).count();
        let largest = self.waiters.iter().map(|waiter| &waiter.request.tenant);
        let (most, largest) = largest.map(|of| (count(of), of)).max_by_key(|(count, _)| *count)?;
        if most < count(tenant) + 2 {
            return None;
        }
        let last = self.waiters.iter().rposition(|waiter| waiter.request.tenant == *largest)?;
        self.take(last)
    }
}
