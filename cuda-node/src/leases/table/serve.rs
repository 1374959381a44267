//! Leases for waiting requests: the choice of the slot, reservations, preemption.

use super::{
    super::{
        action::Action,
        ids::{LeaseId, SlotId},
        lease::{Cause, Lease, Phase},
        queue::Waiter,
    },
    LeaseTable,
};

impl LeaseTable {
    /// Grants leases to the waiting requests for which a slot has capacity, in their order. A request without capacity
    /// reserves one slot against the requests after it.
    ///
    /// The reserved slot is the one with the fewest leases, or the fewest to preempt. Nothing is added to it, so the
    /// minimum over the slots only shrinks until the first request is granted: it does not starve.
    ///
    /// A request that preempts ends no lease immediately, so capacity becomes free only when a lease ends.
    pub(super) fn serve(&mut self) {
        let mut reserved = Vec::new();
        let mut index = 0;
        while let Some(waiter) = self.queue.get(index) {
            if let Some(slot) = self.slot_with_room(waiter, &reserved) {
                let Some(waiter) = self.queue.take(index) else { return };
                let request = waiter.id;
                // The answer comes before the assignment of the worker.
                let at = self.actions.len();
                let lease = self.grant(waiter, slot);
                self.actions.insert(at, Action::Admitted { request, lease });
                continue;
            }
            if let Some((slot, victims)) = self.slot_to_reserve(waiter, &reserved) {
                let priority = waiter.request.priority;
                reserved.push(slot);
                for lease in victims {
                    let cause = Cause::Preempted { priority };
                    self.announce_end(lease, cause, self.config.preempt_notice);
                }
            }
            index += 1;
        }
    }

    /// The slot that has capacity for a new request, without the slots that the waiting requests before it reserve.
    pub(super) fn slot_now(&self, new: &Waiter) -> Option<SlotId> {
        let mut reserved = Vec::new();
        for waiter in self.queue.iter().take(self.queue.index_for(new)) {
            reserved.extend(self.slot_to_reserve(waiter, &reserved).map(|(slot, _)| slot));
        }
        self.slot_with_room(new, &reserved)
    }

    /// Creates the lease of a request.
    pub(super) fn grant(&mut self, waiter: Waiter, slot: SlotId) -> LeaseId {
        let lease = LeaseId(self.new_id());
        let Waiter { request, lease_secs, .. } = waiter;
        let quota = request.min_vram;
        let mut charge = quota;
        if let Some(place) = self.slot_mut(slot) {
            charge = place.charge(quota).unwrap_or(quota);
            place.add(lease, charge, request.class);
        }
        self.counters.granted += 1;
        self.actions.push_back(Action::AssignWorker { lease, slot, quota });
        let granted = Lease {
            request,
            slot,
            charge,
            lease_secs,
            phase: Phase::Granted,
            generation: 1,
            overlap: None,
            announced: None,
            reconnect_by: None,
        };
        self.leases.insert(lease, granted);
        lease
    }

    /// The slots that could hold the request if they were empty, without the reserved ones.
    fn possible_slots<'a>(
        &'a self,
        waiter: &'a Waiter,
        reserved: &'a [SlotId],
    ) -> impl Iterator<Item = SlotId> + 'a {
        let slots = self.slots.iter().enumerate().map(|(index, slot)| (SlotId(index), slot));
        let can = |(id, slot): &(SlotId, &super::Slot)| {
            waiter.accepts(*id) && !slot.fenced && slot.charge(waiter.request.min_vram).is_some()
        };
        slots.filter(can).map(|(id, _)| id).filter(|id| !reserved.contains(id))
    }

    /// The slot for this request: few leases first, because leases share the time of the device, then the least free
    /// memory, because large requests need the rest.
    fn slot_with_room(&self, waiter: &Waiter, reserved: &[SlotId]) -> Option<SlotId> {
        let request = &waiter.request;
        let rooms = self.possible_slots(waiter, reserved).filter_map(|id| {
            let slot = self.slots.get(id.0)?;
            let now = slot.occupancy();
            let free = slot.config.capacity.saturating_sub(now.used);
            slot.has_room(now, request.min_vram, request.class).then_some((now.leases, free, id))
        });
        rooms.min().map(|(_, _, id)| id)
    }

    /// The slot that this request waits for, and the leases to preempt there.
    fn slot_to_reserve(
        &self,
        waiter: &Waiter,
        reserved: &[SlotId],
    ) -> Option<(SlotId, Vec<LeaseId>)> {
        let ranked = self.possible_slots(waiter, reserved).filter_map(|id| {
            let victims = self.victims(waiter, id);
            let count = victims.as_ref().map_or(usize::MAX, Vec::len);
            Some((count, self.slots.get(id.0)?.leases.len(), id, victims.unwrap_or_default()))
        });
        ranked.min().map(|(_, _, id, victims)| (id, victims))
    }

    /// The leases of a slot whose end frees capacity for this request, besides those that are leaving anyway: lowest
    /// priority first, then the youngest. `None` if the request may not preempt, or if even that does not free enough.
    fn victims(&self, waiter: &Waiter, slot: SlotId) -> Option<Vec<LeaseId>> {
        if !self.config.preempt {
            return None;
        }
        let slot = self.slots.get(slot.0)?;
        let request = &waiter.request;
        let mut rest = slot.occupancy();
        let mut remove = |lease: &Lease| {
            rest.leases = rest.leases.saturating_sub(1);
            rest.used = rest.used.saturating_sub(lease.charge);
            if rest.leases == 0 {
                rest.class = None;
            }
            slot.has_room(rest, request.min_vram, request.class)
        };
        let present = slot.leases.iter().filter_map(|id| Some((*id, self.leases.get(id)?)));
        let (leaving, staying): (Vec<_>, Vec<_>) =
            present.partition(|(_, lease)| lease.is_leaving());
        let mut has_room = false;
        for (_, lease) in leaving {
            has_room = remove(lease);
        }
        let mut victims = Vec::new();
        if has_room {
            return Some(victims);
        }
        // A request that times out before its victims have ended must not end them.
        let ends = self.config.preempt_notice.saturating_add(self.config.grace);
        if waiter.until <= self.now.saturating_add(ends) {
            return None;
        }
        let mut lower: Vec<_> = staying
            .into_iter()
            .filter(|(_, lease)| lease.request.priority < request.priority)
            .map(|(id, lease)| (lease.request.priority, std::cmp::Reverse(id), lease))
            .collect();
        lower.sort_by_key(|(priority, id, _)| (*priority, *id));
        for (_, id, lease) in lower {
            victims.push(id.0);
            if remove(lease) {
                return Some(victims);
            }
        }
        None
    }
}
