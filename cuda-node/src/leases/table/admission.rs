//! Admission of requests: repetition, limits, quotas, the choice of the slot, reservations and preemption.

use std::{collections::BTreeMap, time::Duration};

use cuda_lease::wire::{Exclusivity, Status};

use super::LeaseTable;
use crate::leases::{
    lease::{Cause, Lease, LeaseState, Phase},
    output::Action,
    request::{LeaseId, LeaseRequest, Placement, Refusal, RequestId, SlotId, Waiter},
    slot::{Occupancy, Slot},
};

/// The characters of a device's name that a refusal repeats.
const SHOWN_CHARS: usize = 64;

/// A request that passed all checks.
struct Admissible {
    request: LeaseRequest,
    lease_secs: u32,
    wanted: Option<SlotId>,
}

impl LeaseTable {
    /// Requests a lease. A request with the tenant and nonce of an earlier one gets the same lease, the same place in
    /// the queue, or the cause of that lease's end.
    ///
    /// If no slot has capacity, the request waits for at most `request.wait`. Waiting requests are served by priority,
    /// then in the order of arrival. A request that does not fit reserves the slot with the fewest leases that can ever
    /// hold it, for at most [`max_reservation`](crate::leases::TableConfig::max_reservation), so that later requests do
    /// not overtake it. It does not reserve a slot where leases of its own tenant keep it out, or that its tenant has
    /// reserved for that time.
    ///
    /// If the queue is full, a tenant with fewer waiting requests takes the place of the last request of the tenant
    /// that has the most.
    ///
    /// # Errors
    /// - `BadRequest`: a field is outside the limits of the node, or the nonce belongs to a different request.
    /// - `NotFound`: there is no slot of this name.
    /// - `QuotaExceeded`: a quota of the tenant is used up. Waiting requests count, leases whose worker is being killed
    ///   do not. A request that preempts leases counts until they have ended, also if it is withdrawn.
    /// - `TooLarge`: the request exceeds a quota on its own, or no slot can ever hold the lease.
    /// - `CapacityExceeded`: there is no free capacity and the request does not wait, or the queue is full.
    /// - `Fenced`: every slot that could hold the lease is fenced.
    /// - The [status](super::super::Cause::status) of an ended lease, for a repeated request.
    pub fn request(&mut self, now: Duration, request: LeaseRequest) -> Result<Placement, Refusal> {
        self.advance(now);
        if let Some(earlier) = self.earlier_answer(&request) {
            return earlier;
        }
        self.counters.requests += 1;
        let answer = self.check(request).and_then(|admissible| self.admit(admissible));
        if let Err(refusal) = &answer {
            self.counters.refuse(refusal.status);
        }
        answer
    }

    /// Withdraws a queued request. Returns whether it was in the queue. Leases that it preempts end all the same: their
    /// clients have been told. A request that was admitted meanwhile has a lease; free it.
    pub fn cancel(&mut self, now: Duration, request: RequestId) -> bool {
        self.advance(now);
        if self.queue.take_where(|waiter| waiter.id == request).is_none() {
            return false;
        }
        self.counters.cancelled += 1;
        self.serve();
        true
    }

    /// The requests that preempt leases, once for each lease. Also those that were withdrawn: they count for the quota of
    /// their tenant, which could otherwise end the leases of all others at a time.
    fn preempting(&self) -> impl Iterator<Item = &LeaseRequest> {
        self.leases.values().filter_map(|lease| lease.preempted_for.as_ref())
    }

    /// The answer to a request whose nonce was used before.
    fn earlier_answer(&self, request: &LeaseRequest) -> Option<Result<Placement, Refusal>> {
        let (tenant, nonce) = (&request.tenant, &request.nonce);
        let is_same = |other: &LeaseRequest| other.nonce == *nonce && other.tenant == *tenant;
        let mismatch = || {
            let message =
                "the nonce belongs to an earlier request with other terms; use a new nonce";
            Some(Err(Refusal::new(Status::BadRequest, message)))
        };
        if self.preempting().any(|other| is_same(other) && !request.has_terms_of(other)) {
            return mismatch();
        }
        if let Some((ahead, waiter)) = self.queue.of_nonce(tenant, nonce) {
            if !request.has_terms_of(&waiter.request) {
                return mismatch();
            }
            return Some(Ok(Placement::Queued { request: waiter.id, ahead }));
        }
        if let Some((id, lease)) = self.leases.iter().find(|(_, lease)| is_same(&lease.request)) {
            if !request.has_terms_of(&lease.request) {
                return mismatch();
            }
            return Some(match lease.cause() {
                None => Ok(Placement::Leased(*id)),
                Some(cause) => Err(cause.refusal(*id)),
            });
        }
        let (id, cause) = self.ended.of_nonce(tenant, nonce)?;
        Some(Err(cause.refusal(id)))
    }

    fn check(&self, request: LeaseRequest) -> Result<Admissible, Refusal> {
        if request.min_vram == 0 {
            let message = "min_vram is 0; request at least 1 byte";
            return Err(Refusal::new(Status::BadRequest, message));
        }
        let lease_secs = self.check_secs(&request, request.lease_secs)?;
        self.check_quota(&request)?;
        let wanted = self.check_slots(&request)?;
        Ok(Admissible { request, lease_secs, wanted })
    }

    /// The time that a request or a renewal of this lease may have: `secs`, or the default if that is 0.
    pub(super) fn check_secs(&self, request: &LeaseRequest, secs: u32) -> Result<u32, Refusal> {
        let quota = self.quotas.of(&request.tenant).max_lease_secs;
        let limit = self.config.max_lease_secs.min(quota);
        if secs > self.config.max_lease_secs {
            let message =
                format!("{secs} s exceed the node's limit of {limit} s at a time; request less");
            return Err(Refusal::new(Status::BadRequest, message));
        }
        let default = match request.lease_secs {
            0 => self.config.default_lease_secs,
            secs => secs,
        };
        if secs > quota || quota == 0 {
            let tenant = request.tenant.as_str();
            let asked = if secs == 0 { default } else { secs };
            let message = format!(
                "{asked} s exceed the limit of tenant {tenant:?}, {limit} s at a time; request less"
            );
            return Err(Refusal::new(Status::TooLarge, message));
        }
        Ok(if secs == 0 { default.min(limit) } else { secs })
    }

    fn check_quota(&self, request: &LeaseRequest) -> Result<(), Refusal> {
        let tenant = &request.tenant;
        let quota = self.quotas.of(tenant);
        // A request that exceeds a limit on its own can never be granted.
        let exceeded = |alone: bool, limit: String| {
            let status = if alone { Status::TooLarge } else { Status::QuotaExceeded };
            let message = format!("tenant {:?}: {limit}", tenant.as_str());
            Err(Refusal::new(status, message))
        };
        if request.priority > quota.max_priority {
            let (is, limit) = (request.priority, quota.max_priority);
            let detail =
                format!("priority {is} exceeds the limit {limit}; request at most {limit}");
            return exceeded(true, detail);
        }
        if !quota.classes.iter().any(|class| class == request.class) {
            let classes: Vec<_> = quota.classes.iter().map(Exclusivity::name).collect();
            let detail = format!(
                "it may have no lease of the class `{}`; request one of the class `{}`, or ask the operator of the node",
                request.class.name(),
                classes.join("` or `")
            );
            return exceeded(true, detail);
        }
        if quota.max_leases == 0 {
            let detail = "it may have no leases (max_leases); ask the operator of the node";
            return exceeded(true, detail.into());
        }
        if request.min_vram > quota.max_vram {
            let (asked, limit) = (request.min_vram, quota.max_vram);
            let detail = format!(
                "a lease of {asked} bytes exceeds its limit of {limit} bytes (max_vram); request at most {limit} bytes"
            );
            return exceeded(true, detail);
        }
        let leases = self.leases.values().filter(|lease| lease.state() != LeaseState::Killing);
        let waiting = self.queue.iter().map(|waiter| &waiter.request);
        let present = leases.map(|lease| &lease.request).chain(waiting).chain(self.preempting());
        // A request that preempts may wait, have its lease, or be withdrawn. A repeated one is the same request.
        let present: BTreeMap<_, _> = present
            .filter(|other| other.tenant == *tenant && other.nonce != request.nonce)
            .map(|other| (other.nonce, other.min_vram))
            .collect();
        let (count, used) = (present.len(), present.into_values().fold(0, u64::saturating_add));
        if count >= usize::try_from(quota.max_leases).unwrap_or(usize::MAX) {
            let limit = quota.max_leases;
            let detail = format!(
                "there are {count} leases and queued requests, the limit is {limit}; free a lease or withdraw a request \
                 (one that preempts leases counts until these have ended)"
            );
            return exceeded(false, detail);
        }
        if used.saturating_add(request.min_vram) > quota.max_vram {
            let (asked, limit) = (request.min_vram, quota.max_vram);
            let detail = format!(
                "the request for {asked} bytes is refused: {used} of the tenant's {limit} bytes are in use by leases \
                 and queued requests; free a lease or request less"
            );
            return exceeded(false, detail);
        }
        Ok(())
    }

    /// The slot that the request names, if it names one.
    fn check_slots(&self, request: &LeaseRequest) -> Result<Option<SlotId>, Refusal> {
        let named =
            |slot: &Slot| request.slot.as_ref().is_none_or(|name| slot.config.name == *name);
        let wanted = match &request.slot {
            None => None,
            Some(name) => {
                let Some(index) = self.slots.iter().position(named) else {
                    let names: Vec<_> = self.slots.iter().map(|slot| &*slot.config.name).collect();
                    // The message is logged, and the name is text of a client.
                    let name: String = name.chars().take(SHOWN_CHARS).collect();
                    let message = format!(
                        "the node has no device {name:?}; its devices are {}",
                        names.join(", ")
                    );
                    return Err(Refusal::new(Status::NotFound, message));
                };
                Some(SlotId(index))
            }
        };
        let quota = request.min_vram;
        let mut possible =
            self.slots.iter().filter(|slot| named(slot) && slot.charge(quota).is_some());
        if possible.clone().next().is_none() {
            let largest = self.slots.iter().filter(|slot| named(slot));
            let largest =
                largest.map(|slot| slot.config.capacity.saturating_sub(slot.config.reserve));
            let message = format!(
                "a lease of {quota} bytes exceeds the largest one that this node can grant, {} bytes; request less",
                largest.max().unwrap_or_default()
            );
            return Err(Refusal::new(Status::TooLarge, message));
        }
        if possible.all(|slot| slot.fenced) {
            return Err(Self::fenced_refusal());
        }
        Ok(wanted)
    }

    fn fenced_refusal() -> Refusal {
        let message = "every device that could hold the lease is fenced until an operator has checked it; request \
                       another device, or try again later";
        Refusal::new(Status::Fenced, message)
    }

    /// Grants the lease if there is free capacity. Otherwise puts the request into the queue, if it may wait.
    fn admit(&mut self, admissible: Admissible) -> Result<Placement, Refusal> {
        let Admissible { request, lease_secs, wanted } = admissible;
        let id = RequestId(self.new_id());
        let wait = request.wait.min(self.config.max_wait);
        let until = self.now.saturating_add(wait);
        let reserves_until = Some(self.now.saturating_add(self.config.max_reservation));
        let waiter = Waiter { id, request, lease_secs, wanted, until, reserves_until };
        let reserved = self.reservations_before(&waiter);
        let slots: Vec<_> = reserved.iter().map(|(slot, _)| *slot).collect();
        if let Some(slot) = self.slot_with_room(&waiter, &slots) {
            return Ok(Placement::Leased(self.grant(waiter, slot)));
        }
        if wait.is_zero() {
            return Err(self.no_capacity(&waiter, &reserved));
        }
        let limit = self.config.queue_limit;
        if self.queue.len() >= limit {
            let Some(displaced) = self.queue.displace_for(&waiter.request.tenant) else {
                let message = format!(
                    "the node has no free capacity, and the queue is full: {limit} requests wait; try again later"
                );
                return Err(Refusal::new(Status::CapacityExceeded, message));
            };
            let message = format!(
                "the queue is full: {limit} requests wait, of which tenant {:?} has the most, so a request of another \
                 tenant takes the place of its last one; try again later",
                displaced.request.tenant.as_str()
            );
            self.refuse_waiter(displaced.id, Refusal::new(Status::CapacityExceeded, message));
        }
        self.queue.insert(waiter);
        self.counters.queued += 1;
        let ahead = self.queue.position(id).unwrap_or_default();
        self.serve();
        Ok(Placement::Queued { request: id, ahead })
    }

    /// The refusal of a request that does not wait. `reserved` has the reservations of waiting requests, and their
    /// ends.
    fn no_capacity(&self, request: &Waiter, reserved: &[(SlotId, Duration)]) -> Refusal {
        let is_free = |(slot, _): &&(SlotId, Duration)| {
            let others: Vec<_> =
                (0..self.slots.len()).map(SlotId).filter(|id| id != slot).collect();
            self.slot_with_room(request, &others).is_some()
        };
        let free = reserved.iter().filter(is_free).min_by_key(|(_, until)| *until);
        let message = match free.and_then(|(slot, until)| Some((self.slots.get(slot.0)?, until))) {
            Some((slot, until)) => format!(
                "device {} has free capacity, but it is reserved for a request that waits, for {} s at most; try again \
                 then, or let the request wait",
                slot.config.name,
                until.saturating_sub(self.now).as_secs_f64().ceil()
            ),
            None => format!(
                "the node has no free capacity{}; try again later, or let the request wait",
                self.obstacle(request)
            ),
        };
        Refusal::new(Status::CapacityExceeded, message)
    }

    /// Why no slot has room: because of the classes of the leases there, their number, or their memory.
    fn obstacle(&self, request: &Waiter) -> String {
        let wanted = request.request.class;
        let slots = self.possible_slots(request, &[]).filter_map(|slot| self.slots.get(slot.0));
        let others = slots.map(|slot| {
            let class = slot.occupancy().class;
            class.filter(|class| *class != wanted || wanted == Exclusivity::Device)
        });
        match others.collect::<Option<Vec<_>>>().as_deref() {
            Some([class, ..]) => format!(
                ": beside leases of the class `{}` on the device it gives none of the class `{}`",
                class.name(),
                wanted.name()
            ),
            _ => self.shortage(request).unwrap_or_default(),
        }
    }

    /// Says what the possible slots lack for another lease: places or memory. Returns `None` if they lack neither.
    fn shortage(&self, request: &Waiter) -> Option<String> {
        let slots = self.possible_slots(request, &[]).filter_map(|slot| self.slots.get(slot.0));
        let (full, others): (Vec<_>, Vec<_>) =
            slots.partition(|slot| slot.leases.len() >= slot.config.max_leases as usize);
        let free = |slot: &&Slot| {
            let charged = slot.occupancy().used.saturating_add(slot.config.reserve);
            slot.config.capacity.saturating_sub(charged)
        };
        match others.iter().map(free).max() {
            None => full.first().map(|slot| {
                format!(": device {} has {} leases, the limit", slot.config.name, slot.leases.len())
            }),
            Some(free) => (free < request.request.min_vram).then(|| {
                let wanted = request.request.min_vram;
                format!(": the request needs {wanted} bytes of memory, and a device has at most {free} bytes free")
            }),
        }
    }

    /// Refuses the requests that have waited for too long.
    pub(super) fn refuse_overdue_requests(&mut self) {
        let now = self.now;
        let mut removed = false;
        while let Some(waiter) = self.queue.take_where(|waiter| waiter.until <= now) {
            removed = true;
            let message = format!(
                "the node had no free capacity during the wait{}; try again later, wait longer, or request less",
                self.obstacle(&waiter)
            );
            self.refuse_waiter(waiter.id, Refusal::new(Status::CapacityExceeded, message));
        }
        if removed {
            self.serve();
        }
    }

    /// Refuses the requests that only fenced slots could hold.
    pub(super) fn refuse_fenced_requests(&mut self) {
        let slots = &self.slots;
        let is_stuck = |waiter: &Waiter| {
            let fits = |(index, slot): (usize, &Slot)| {
                waiter.accepts(SlotId(index))
                    && slot.charge(waiter.request.min_vram).is_some()
                    && !slot.fenced
            };
            !slots.iter().enumerate().any(fits)
        };
        let mut stuck = Vec::new();
        while let Some(waiter) = self.queue.take_where(is_stuck) {
            stuck.push(waiter.id);
        }
        for id in stuck {
            self.refuse_waiter(id, Self::fenced_refusal());
        }
    }

    fn refuse_waiter(&mut self, request: RequestId, refusal: Refusal) {
        self.counters.refuse(refusal.status);
        self.actions.push_back(Action::Refused { request, refusal });
    }

    /// Grants leases to the waiting requests for which a slot has capacity, in their order. A request without capacity
    /// reserves one slot against the requests after it, until its reservation is over.
    ///
    /// The reserved slot is the one with the fewest leases, or the fewest to preempt. Nothing is added to it, so the
    /// minimum over the slots only shrinks until the first request is granted, or its reservation is over.
    ///
    /// A request that preempts ends no lease immediately, so capacity becomes free only when a lease ends.
    pub(super) fn serve(&mut self) {
        let (mut reserved, mut by_tenants) = (Vec::new(), Vec::new());
        let mut index = 0;
        while let Some(waiter) = self.queue.get(index) {
            if let Some(slot) = self.slot_with_room(waiter, &reserved) {
                let Some(waiter) = self.queue.take(index) else { break };
                let request = waiter.id;
                // The answer comes before the assignment of the worker.
                let at = self.actions.len();
                let lease = self.grant(waiter, slot);
                self.actions.insert(at, Action::Admitted { request, lease });
                continue;
            }
            if let Some((slot, victims)) = self.slot_to_reserve(waiter, &reserved) {
                reserved.push(slot);
                match victims {
                    None => by_tenants.push((waiter.request.tenant.clone(), slot)),
                    Some(victims) => {
                        let request = waiter.request.clone();
                        victims.into_iter().for_each(|lease| self.preempt(lease, &request));
                    }
                }
            }
            index += 1;
        }
        self.reservations.replace(self.now, by_tenants);
    }

    fn preempt(&mut self, lease: LeaseId, request: &LeaseRequest) {
        if let Some(of) = self.leases.get_mut(&lease) {
            of.preempted_for = Some(request.clone());
        }
        let cause = Cause::Preempted { priority: request.priority };
        self.announce_end(lease, cause, self.config.preempt_notice);
    }

    /// The slots that the waiting requests before a new one reserve, and the ends of the reservations.
    fn reservations_before(&self, new: &Waiter) -> Vec<(SlotId, Duration)> {
        let (mut slots, mut reserved) = (Vec::new(), Vec::new());
        for waiter in self.queue.iter().take(self.queue.index_for(new)) {
            if let Some((slot, _)) = self.slot_to_reserve(waiter, &slots) {
                let of_tenant = self.reservations.end_of(self.now, &waiter.request.tenant, slot);
                slots.push(slot);
                let ends = waiter.reserves_until.into_iter().chain(of_tenant);
                reserved.push((slot, ends.min().unwrap_or_default()));
            }
        }
        reserved
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
            earlier: Duration::ZERO,
            overlap: None,
            announced: None,
            preempted_for: None,
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

    /// The slot that this request reserves, and the leases to preempt there if it may. `None` if its reservation or that
    /// of its tenant is over, or if it waits for leases of its own tenant.
    fn slot_to_reserve(
        &self,
        waiter: &Waiter,
        reserved: &[SlotId],
    ) -> Option<(SlotId, Option<Vec<LeaseId>>)> {
        waiter.reserves_until?;
        let tenant = &waiter.request.tenant;
        let ranked = self.possible_slots(waiter, reserved).filter_map(|id| {
            let victims = self.victims(waiter, id);
            // With victims the reservation is short: the slot has capacity after their notice.
            if victims.is_none() {
                self.reservations.end_of(self.now, tenant, id)?;
                if self.is_kept_out_by_own_leases(waiter, id) {
                    return None;
                }
            }
            let count = victims.as_ref().map_or(usize::MAX, Vec::len);
            Some((count, self.slots.get(id.0)?.leases.len(), id, victims))
        });
        ranked.min().map(|(_, _, id, victims)| (id, victims))
    }

    /// Whether the slot would have no capacity for this request even if it had only the leases of the same tenant.
    fn is_kept_out_by_own_leases(&self, waiter: &Waiter, slot: SlotId) -> bool {
        let Some(slot) = self.slots.get(slot.0) else { return false };
        let request = &waiter.request;
        let mut own = Occupancy::default();
        let leases = slot.leases.iter().filter_map(|id| self.leases.get(id));
        for lease in leases.filter(|lease| lease.request.tenant == request.tenant) {
            own.leases += 1;
            own.used = own.used.saturating_add(lease.charge);
            own.class = Some(lease.request.class);
        }
        !slot.has_room(own, request.min_vram, request.class)
    }

    /// The leases of a slot whose end frees capacity for this request, besides those that are leaving anyway: lowest
    /// priority first, then the youngest. `None` if the request may not preempt, or if even that does not free enough.
    /// A lease with a longer notice than that of a preemption stays: the operator may have given it hours.
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
        let notice = self.config.preempt_notice;
        let (leaving, staying): (Vec<_>, Vec<_>) =
            present.partition(|(_, lease)| lease.leaves_within(self.now, notice));
        let mut has_room = false;
        for (_, lease) in leaving {
            has_room = remove(lease);
        }
        let mut victims = Vec::new();
        if has_room {
            return Some(victims);
        }
        // A request that times out before its victims have ended must not end them.
        let ends = notice.saturating_add(self.config.grace);
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
