//! Reports about workers, the end of leases, and fences.

use std::time::Duration;

use cuda_lease::wire::Status;

use super::{
    super::{
        action::Action,
        ids::{LeaseId, SlotId},
        lease::{Cause, Phase},
        request::Refusal,
    },
    LeaseTable,
};

impl LeaseTable {
    /// Reports that the worker of a lease accepts work. The duration of the lease starts. Returns whether the lease
    /// waited for that.
    pub fn worker_ready(&mut self, now: Duration, lease: LeaseId) -> bool {
        self.advance(now);
        let Some(of) = self.leases.get_mut(&lease) else { return false };
        if !matches!(of.phase, Phase::Starting { .. }) {
            return false;
        }
        let length = u64::from(of.lease_secs).min(self.config.max_total_secs.unwrap_or(u64::MAX));
        let length = Duration::from_secs(length);
        of.phase = Phase::Active { since: self.now, until: self.now.saturating_add(length) };
        true
    }

    /// Reports that the worker of a lease died, or could not be started. The lease ends without grace; `KillWorker`
    /// follows, and `worker_gone` answers it. Returns whether this had an effect.
    pub fn worker_died(&mut self, now: Duration, lease: LeaseId) -> bool {
        self.advance(now);
        let phase = self.leases.get(&lease).map(|of| &of.phase);
        if matches!(phase, None | Some(Phase::Granted | Phase::Killing { .. })) {
            return false;
        }
        self.begin_end(lease, Cause::WorkerDied);
        true
    }

    /// Answers `KillWorker`: the worker has exited, and `memory_back` states whether its memory was verified to be
    /// free. The lease has ended. If the memory is not free, the slot is fenced and the bytes stay charged until a
    /// later call reports them as free, or until [`unfence`](Self::unfence).
    ///
    /// Before `KillWorker` was polled this is only a report that the worker died; `KillWorker` has to be answered
    /// again. Returns whether the report had an effect.
    pub fn worker_gone(&mut self, now: Duration, lease: LeaseId, memory_back: bool) -> bool {
        self.advance(now);
        match self.leases.get(&lease).map(|of| &of.phase) {
            None => memory_back && self.slots.iter_mut().any(|slot| slot.returned(lease)),
            Some(Phase::Killing { by: Some(_), .. }) => {
                if memory_back {
                    self.end(lease, true);
                    self.serve();
                } else {
                    self.lose_worker(lease);
                }
                true
            }
            Some(Phase::Granted | Phase::Killing { by: None, .. }) => false,
            Some(_) => {
                self.begin_end(lease, Cause::WorkerDied);
                true
            }
        }
    }

    /// Takes a slot out of service: its leases end with [`Cause::Fenced`] after the grace, and requests that no other
    /// slot could hold are refused. Returns whether the slot was in service.
    pub fn fence(&mut self, now: Duration, slot: SlotId) -> bool {
        self.advance(now);
        self.fence_slot(slot)
    }

    /// Puts a slot back into service. The operator has verified that the memory of all ended leases is free. A kill
    /// that turns out to be overdue in this call fences the slot again. No effect on a slot in service.
    ///
    /// # Errors
    /// `NotFound`: there is no such slot.
    pub fn unfence(&mut self, now: Duration, slot: SlotId) -> Result<(), Refusal> {
        let Some(of) = self.slot_mut(slot) else {
            let message = format!("there is no slot {slot}; the node has {}", self.slots.len());
            return Err(Refusal::new(Status::NotFound, message));
        };
        // Before the clock moves: the operator has not verified what this call is the first to find.
        of.unfence();
        self.actions.retain(|action| *action != Action::Fence { slot });
        self.advance(now);
        self.run_next_session(slot);
        self.serve();
        Ok(())
    }

    /// Ends a lease whose memory is not verified to be back, and fences its slot.
    pub(super) fn lose_worker(&mut self, lease: LeaseId) {
        let Some(slot) = self.leases.get(&lease).map(|of| of.slot) else { return };
        // The fence comes first: on a slot in service the end would start the next session while the worker may still
        // run.
        self.fence_slot(slot);
        self.end(lease, false);
        self.serve();
    }

    fn fence_slot(&mut self, slot: SlotId) -> bool {
        let Some(of) = self.slot_mut(slot) else { return false };
        if std::mem::replace(&mut of.fenced, true) {
            return false;
        }
        let leases = of.leases.clone();
        self.counters.fences += 1;
        self.actions.push_back(Action::Fence { slot });
        for lease in leases {
            self.begin_end(lease, Cause::Fenced);
        }
        self.refuse_fenced_requests();
        // Requests that had reserved the slot now reserve another one.
        self.serve();
        true
    }

    /// Removes a lease.
    fn end(&mut self, lease: LeaseId, memory_back: bool) {
        let Some(of) = self.leases.remove(&lease) else { return };
        self.counters.ended += 1;
        if let Some(slot) = self.slot_mut(of.slot) {
            slot.remove(lease, of.charge, memory_back);
            slot.sessions.remove(lease);
        }
        self.run_next_session(of.slot);
        if let Phase::Killing { cause, .. } = of.phase {
            let limit = self.config.ended_limit;
            self.ended.add(lease, of.request.tenant, of.request.nonce, cause, limit);
        }
    }
}
