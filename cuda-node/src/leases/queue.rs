//! Requests that wait for capacity.

use std::time::Duration;

use super::request::{LeaseRequest, RequestId, SlotId};
use crate::quotas::Tenant;

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
        self.waiters.iter().map(|waiter| waiter.until).min()
    }
}
