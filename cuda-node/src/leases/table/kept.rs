//! Leases that outlive the table: what a later table needs to know of one.

use std::time::Duration;

use cuda_lease::authority::Tenant;
use serde::{Deserialize, Serialize};

use super::LeaseTable;
use crate::leases::{
    lease::{Cause, Lease, Phase},
    request::{Exclusivity, LeaseId, LeaseRequest},
};

/// An active lease, without a clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLease {
    /// Its id.
    pub id: u64,
    /// The name of its slot.
    pub slot: String,
    /// Its tenant.
    pub tenant: String,
    nonce: [u8; 16],
    /// Its quota, in bytes.
    pub quota: u64,
    /// The terms of the request: a repetition of the request has the same.
    requested_secs: u32,
    requested_slot: Option<String>,
    priority: i32,
    class: Class,
    lease_secs: u32,
    generation: u64,
    /// The time since its worker was ready.
    age: Duration,
    /// The time until it expires.
    remaining: Duration,
}

/// [`Exclusivity`], as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Class {
    Shared,
    Session,
    Device,
}

impl From<Exclusivity> for Class {
    fn from(class: Exclusivity) -> Self {
        match class {
            Exclusivity::Shared => Self::Shared,
            Exclusivity::Session => Self::Session,
            Exclusivity::Device => Self::Device,
        }
    }
}

impl From<Class> for Exclusivity {
    fn from(class: Class) -> Self {
        match class {
            Class::Shared => Self::Shared,
            Class::Session => Self::Session,
            Class::Device => Self::Device,
        }
    }
}

impl LeaseTable {
    /// Returns the record of an active lease for a later table. `None` for one that is not active yet, and for one whose
    /// end has begun. A later table has no lease whose end was announced.
    pub fn kept(&self, lease: LeaseId) -> Option<KeptLease> {
        let of = self.leases.get(&lease)?;
        let Phase::Active { since, until } = of.phase else { return None };
        let LeaseRequest { tenant, nonce, min_vram, lease_secs, class, slot, priority, .. } =
            &of.request;
        Some(KeptLease {
            id: lease.0,
            slot: self.slots.get(of.slot.0)?.config.name.clone(),
            tenant: tenant.as_str().to_owned(),
            nonce: *nonce,
            quota: *min_vram,
            requested_secs: *lease_secs,
            requested_slot: slot.clone(),
            priority: *priority,
            class: (*class).into(),
            lease_secs: of.lease_secs,
            generation: of.generation,
            age: of.earlier.saturating_add(self.now.saturating_sub(since)),
            remaining: until.saturating_sub(self.now),
        })
    }

    /// Adds a lease of an earlier table, `elapsed` after [`kept`](Self::kept). Its reconnect window begins with
    /// [`disconnected`](Self::disconnected), once its client can connect. The reply to its last renewal may be lost, so the
    /// previous generation is valid as after [`renewal_lost`](Self::renewal_lost).
    /// No session of the slot runs until [`session_idle`](Self::session_idle) is reported for each that was restored.
    /// The quotas of tenants do not apply.
    ///
    /// Returns `None` if there is no such slot, or if the lease does not fit beside the leases there: it has ended then,
    /// with [`Cause::NoPlace`]. Also if its id is in use or its tenant's name is not valid.
    pub fn restore(
        &mut self,
        now: Duration,
        kept: KeptLease,
        elapsed: Duration,
    ) -> Option<LeaseId> {
        self.advance(now);
        let id = LeaseId(kept.id);
        let class = Exclusivity::from(kept.class);
        let tenant = Tenant::try_from(kept.tenant).ok()?;
        if self.leases.contains_key(&id) {
            return None;
        }
        self.counters.requests += 1;
        self.counters.granted += 1;
        let slot = self.slots.iter().position(|slot| slot.config.name == kept.slot);
        let place = slot.and_then(|at| {
            let place = self.slots.get_mut(at)?;
            let has_room = place.has_room(place.occupancy(), kept.quota, class);
            let charge = place.charge(kept.quota).filter(|_| has_room)?;
            Some((at, place, charge))
        });
        let Some((slot, place, charge)) = place else {
            self.counters.ending(&Cause::NoPlace);
            self.counters.ended += 1;
            self.ended.add(id, tenant, kept.nonce, Cause::NoPlace, self.config.ended_limit);
            return None;
        };
        place.add(id, charge, class);
        if class == Exclusivity::Session {
            place.sessions.restore(id);
        }
        let mut request = LeaseRequest::new(tenant, kept.nonce, kept.quota);
        request.lease_secs = kept.requested_secs;
        request.slot = kept.requested_slot;
        request.priority = kept.priority;
        request.class = class;
        let lease = Lease {
            request,
            slot: crate::leases::SlotId(slot),
            charge,
            lease_secs: kept.lease_secs,
            phase: Phase::Active {
                since: self.now,
                until: self.now.saturating_add(kept.remaining.saturating_sub(elapsed)),
            },
            earlier: kept.age.saturating_add(elapsed),
            generation: kept.generation,
            overlap: Some(Duration::MAX),
            announced: None,
            preempted_for: None,
            reconnect_by: None,
        };
        self.leases.insert(id, lease);
        self.skip_ids(kept.id.saturating_add(1));
        Some(id)
    }

    /// Makes sure that later leases and requests get ids of at least `first`.
    pub fn skip_ids(&mut self, first: u64) {
        self.next_id = self.next_id.max(first);
    }
}
