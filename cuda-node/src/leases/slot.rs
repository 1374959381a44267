//! The leases of one slot, and the memory that they are charged with.

use super::{
    config::SlotConfig,
    request::{Exclusivity, LeaseId},
    sessions::Sessions,
};

/// The occupancy of a slot. All its leases have one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Occupancy {
    pub(super) leases: usize,
    /// In bytes, with the memory of ended leases that is not verified to be back.
    pub(super) used: u64,
    /// The class of the leases, if there are any.
    pub(super) class: Option<Exclusivity>,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) config: SlotConfig,
    /// The leases, in the order of their grants.
    pub(super) leases: Vec<LeaseId>,
    used: u64,
    class: Option<Exclusivity>,
    pub(super) fenced: bool,
    /// Ended leases whose memory is not verified to be back, with the bytes. Only a fenced slot has any.
    unreturned: Vec<(LeaseId, u64)>,
    pub(super) sessions: Sessions,
}

impl Slot {
    pub(super) fn new(config: SlotConfig) -> Slot {
        Slot {
            config,
            leases: Vec::new(),
            used: 0,
            class: None,
            fenced: false,
            unreturned: Vec::new(),
            sessions: Sessions::default(),
        }
    }

    pub(super) fn occupancy(&self) -> Occupancy {
        Occupancy { leases: self.leases.len(), used: self.used, class: self.class }
    }

    /// The bytes that a lease with this quota is charged with. `None` if even an empty slot has too few.
    pub(super) fn charge(&self, quota: u64) -> Option<u64> {
        let charge = quota.checked_add(self.config.reserve)?;
        (charge <= self.config.capacity).then_some(charge)
    }

    /// Whether the slot would have capacity for another lease if this were its occupancy.
    pub(super) fn has_room(&self, occupancy: Occupancy, quota: u64, class: Exclusivity) -> bool {
        let beside = match occupancy.class {
            None => true,
            Some(other) => other == class && class != Exclusivity::Device,
        };
        let Some(charge) = self.charge(quota) else { return false };
        // `used` never exceeds the capacity.
        let free = self.config.capacity.saturating_sub(occupancy.used);
        !self.fenced
            && beside
            && charge <= free
            && occupancy.leases < self.config.max_leases as usize
    }

    pub(super) fn add(&mut self, lease: LeaseId, charge: u64, class: Exclusivity) {
        self.leases.push(lease);
        self.used = self.used.saturating_add(charge);
        self.class = Some(class);
    }

    /// Removes a lease. If its memory is not back, the bytes stay charged.
    pub(super) fn remove(&mut self, lease: LeaseId, charge: u64, memory_back: bool) {
        self.leases.retain(|other| *other != lease);
        if self.leases.is_empty() {
            self.class = None;
        }
        if memory_back {
            self.used = self.used.saturating_sub(charge);
        } else {
            self.unreturned.push((lease, charge));
        }
    }

    /// Credits the memory of an ended lease that became free late. Returns whether any was missing.
    pub(super) fn returned(&mut self, lease: LeaseId) -> bool {
        let Some(index) = self.unreturned.iter().position(|(other, _)| *other == lease) else {
            return false;
        };
        let (_, bytes) = self.unreturned.remove(index);
        self.used = self.used.saturating_sub(bytes);
        true
    }

    /// Ends a fence: the operator has verified the device, so all memory of ended leases is free.
    pub(super) fn unfence(&mut self) {
        self.fenced = false;
        for (_, bytes) in std::mem::take(&mut self.unreturned) {
            self.used = self.used.saturating_sub(bytes);
        }
    }
}
