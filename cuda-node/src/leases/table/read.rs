//! The read side: leases, slots, counters.

use crate::quotas::Quotas;

use super::{
    super::{
        counters::Counters,
        ids::{LeaseId, SlotId},
        view::{LeaseView, SlotView},
    },
    LeaseTable,
};

impl LeaseTable {
    /// All leases, in the order of their grants.
    pub fn leases(&self) -> impl Iterator<Item = LeaseView<'_>> {
        self.leases.keys().filter_map(|id| self.lease(*id))
    }

    /// One lease.
    pub fn lease(&self, id: LeaseId) -> Option<LeaseView<'_>> {
        let lease = self.leases.get(&id)?;
        let slot = self.slots.get(lease.slot.0)?;
        Some(LeaseView {
            id,
            tenant: &lease.request.tenant,
            slot: lease.slot,
            slot_name: &slot.config.name,
            quota: lease.request.min_vram,
            charge: lease.charge,
            class: lease.request.class,
            priority: lease.request.priority,
            state: lease.state(),
            cause: lease.cause(),
            remaining: lease.remaining(self.now),
            generation: lease.generation,
            has_announced_end: lease.announced.is_some(),
            is_connected: lease.reconnect_by.is_none(),
            is_running: slot.sessions.running() == Some(id),
        })
    }

    /// All slots, in the order of the configuration.
    pub fn slots(&self) -> impl Iterator<Item = SlotView<'_>> {
        self.slots.iter().enumerate().map(|(index, slot)| {
            let id = SlotId(index);
            SlotView {
                id,
                name: &slot.config.name,
                capacity: slot.config.capacity,
                used: slot.occupancy().used,
                leases: slot.leases.len(),
                max_leases: slot.config.max_leases,
                is_fenced: slot.fenced,
                queued: self.queue.iter().filter(|waiter| waiter.accepts(id)).count(),
            }
        })
    }

    /// The number of waiting requests.
    pub fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// The quotas of tenants.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Totals since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
