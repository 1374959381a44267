//! The life of a lease: authority, renewal, connection, reports about its worker, its end, and fences of its slot.

use std::time::Duration;

use cuda_lease::wire::Status;

use super::LeaseTable;
use crate::leases::{
    lease::{AnnouncedEnd, Cause, Lease, Phase},
    output::Action,
    request::{LeaseId, Refusal, Renewal, SlotId},
};

impl LeaseTable {
    /// Whether a client with this generation of the lease may submit work: the lease is active, and the generation is
    /// the present one, or the previous one within the overlap.
    ///
    /// # Errors
    /// - `Unauthorized`: the generation is not valid.
    /// - `BadRequest`: the worker is not ready yet.
    /// - The [status](Cause::status) of the end, once it has begun. `NotFound` for an unknown lease.
    pub fn authorize(
        &mut self,
        now: Duration,
        lease: LeaseId,
        generation: u64,
    ) -> Result<(), Refusal> {
        self.advance(now);
        self.active(lease, generation).map(|_| ())
    }

    /// Extends an active lease to `secs` from now; 0 stands for the time of its request. A lease is never shortened,
    /// and `max_total_secs` shortens the extension. Begins a new generation; the previous one stays valid for the
    /// overlap. A renewal with the previous generation is a repetition: it extends the lease and returns the present
    /// generation.
    ///
    /// # Errors
    /// - The errors of [`authorize`](Self::authorize).
    /// - `Revoked`: the end of the lease was announced.
    /// - `BadRequest`: more than `max_lease_secs`.
    /// - `TooLarge`: more than the tenant's `max_lease_secs`.
    /// - `QuotaExceeded`: the lease has used `max_total_secs`.
    pub fn renew(
        &mut self,
        now: Duration,
        lease: LeaseId,
        generation: u64,
        secs: u32,
    ) -> Result<Renewal, Refusal> {
        self.advance(now);
        let of = self.active(lease, generation)?;
        if let Some(announced) = &of.announced {
            return Err(announced.cause.refusal(lease));
        }
        let secs = self.check_secs(&of.request, secs)?;
        let (now, overlap) = (self.now, self.config.generation_overlap);
        let total = self.config.max_total_secs;
        let Some(Lease {
            phase: Phase::Active { since, until },
            earlier,
            generation: current,
            overlap: previous,
            ..
        }) = self.leases.get_mut(&lease)
        else {
            return Err(self.absent(lease));
        };
        let mut end = now.saturating_add(Duration::from_secs(secs.into()));
        if let Some(total) = total {
            let left = Duration::from_secs(total).saturating_sub(*earlier);
            let last = since.saturating_add(left);
            if *until >= last {
                let message = format!(
                    "lease {lease} cannot be renewed: it has reached the node's maximum total duration of {total} s; \
                     request a new lease"
                );
                return Err(Refusal::new(Status::QuotaExceeded, message));
            }
            end = end.min(last);
        }
        let end = end.max(*until);
        *until = end;
        let overlap = now.saturating_add(overlap);
        if *current == generation {
            *current = current.saturating_add(1);
            *previous = Some(overlap);
        } else {
            // After a renewal that was lost, the previous generation has no end.
            *previous = previous.map(|until| until.min(overlap));
        }
        let renewal = Renewal { generation: *current, remaining: end.saturating_sub(now) };
        self.counters.renewed += 1;
        Ok(renewal)
    }

    /// Reports that the client did not get the token of a renewal. Its earlier token stays valid until the overlap of
    /// the next renewal is over.
    pub fn renewal_lost(&mut self, lease: LeaseId) {
        if let Some(overlap) = self.leases.get_mut(&lease).and_then(|of| of.overlap.as_mut()) {
            *overlap = Duration::MAX;
        }
    }

    /// Ends a lease for its client, without grace. A lease whose end has begun loses the rest of its grace. Returns
    /// whether this had an effect: `false` while the worker of the lease is being killed.
    ///
    /// # Errors
    /// The lease has ended, or never existed.
    pub fn free(&mut self, now: Duration, lease: LeaseId) -> Result<bool, Refusal> {
        self.advance(now);
        let Some(of) = self.leases.get(&lease) else { return Err(self.absent(lease)) };
        let has_effect = !matches!(of.phase, Phase::Killing { .. });
        self.begin_end(lease, Cause::Freed);
        Ok(has_effect)
    }

    /// Ends a lease for the operator after the notice period, with grace. A lease whose worker is not ready ends
    /// at once. A second revocation can only shorten the notice period.
    ///
    /// # Errors
    /// The lease has ended, its end has begun, or it never existed.
    pub fn revoke(
        &mut self,
        now: Duration,
        lease: LeaseId,
        reason: impl Into<String>,
        notice: Duration,
    ) -> Result<(), Refusal> {
        self.advance(now);
        let Some(of) = self.leases.get(&lease) else { return Err(self.absent(lease)) };
        if let Some(cause) = of.cause() {
            return Err(cause.refusal(lease));
        }
        self.announce_end(lease, Cause::Revoked { reason: reason.into() }, notice);
        Ok(())
    }

    /// Reports the memory that the worker of a lease uses, in bytes. A lease that uses more than its charge ends
    /// without grace, because the memory belongs to the other leases of the slot.
    pub fn memory_used(&mut self, now: Duration, lease: LeaseId, used: u64) {
        self.advance(now);
        let Some(charge) = self.leases.get(&lease).map(|of| of.charge) else { return };
        if used > charge {
            self.begin_end(lease, Cause::OverMemory { used, charge });
        }
    }

    /// Reports that the client of a lease lost its connection. After the reconnect window the lease ends. Returns
    /// whether the lease was connected.
    pub fn disconnected(&mut self, now: Duration, lease: LeaseId) -> bool {
        self.advance(now);
        let by = self.now.saturating_add(self.config.reconnect_window);
        let Some(of) = self.leases.get_mut(&lease) else { return false };
        let was_connected = of.reconnect_by.is_none();
        of.reconnect_by.get_or_insert(by);
        was_connected
    }

    /// Reports that the client of a lease is connected again.
    ///
    /// # Errors
    /// The lease has ended, its worker is being killed, or it never existed.
    pub fn reconnected(&mut self, now: Duration, lease: LeaseId) -> Result<(), Refusal> {
        self.advance(now);
        let Some(of) = self.leases.get_mut(&lease) else { return Err(self.absent(lease)) };
        if let Phase::Killing { cause, .. } = &of.phase {
            return Err(cause.refusal(lease));
        }
        of.reconnect_by = None;
        Ok(())
    }

    /// Whether a client with this generation of the lease may end it: the generation is the present one, or the
    /// previous one within the overlap.
    ///
    /// # Errors
    /// `Unauthorized`: the generation is not valid. `NotFound` for an unknown lease.
    pub fn check_generation(
        &mut self,
        now: Duration,
        lease: LeaseId,
        generation: u64,
    ) -> Result<(), Refusal> {
        self.advance(now);
        self.of_generation(lease, generation).map(|_| ())
    }

    /// The lease, if this generation is valid.
    fn of_generation(&self, lease: LeaseId, generation: u64) -> Result<&Lease, Refusal> {
        let Some(of) = self.leases.get(&lease) else { return Err(self.absent(lease)) };
        let overlap = of.overlap.is_some_and(|until| self.now < until);
        let is_previous = generation.checked_add(1) == Some(of.generation);
        if generation != of.generation && !(is_previous && overlap) {
            let message = format!(
                "generation {generation} of lease {lease} is no longer valid; use the token of the latest renewal"
            );
            return Err(Refusal::new(Status::Unauthorized, message));
        }
        Ok(of)
    }

    /// The lease, if it is active and this generation is valid.
    fn active(&self, lease: LeaseId, generation: u64) -> Result<&Lease, Refusal> {
        let of = self.of_generation(lease, generation)?;
        if let Some(cause) = of.cause() {
            return Err(cause.refusal(lease));
        }
        if !matches!(of.phase, Phase::Active { .. }) {
            let message =
                format!("the worker of lease {lease} is starting; wait until it is ready");
            return Err(Refusal::new(Status::BadRequest, message));
        }
        Ok(of)
    }

    /// Ends a lease after a notice period. Without one, or if the lease is not active yet, its end begins now.
    pub(super) fn announce_end(&mut self, lease: LeaseId, cause: Cause, length: Duration) {
        let (now, Some(of)) = (self.now, self.leases.get_mut(&lease)) else { return };
        if length.is_zero() || !matches!(of.phase, Phase::Active { .. }) {
            return self.begin_end(lease, cause);
        }
        if of.announced.as_ref().is_some_and(|earlier| earlier.left(now) <= length) {
            return;
        }
        // One announcement is pending at a time: the shorter one replaces the other.
        self.actions.retain(
            |action| !matches!(action, Action::AnnounceRevocation { lease: of, .. } if *of == lease),
        );
        of.announced = Some(AnnouncedEnd { cause: cause.clone(), length, until: None });
        self.actions.push_back(Action::AnnounceRevocation { lease, cause, notice: length });
    }

    /// Ends a lease whose notice period is over.
    pub(super) fn execute_announced_end(&mut self, lease: LeaseId) {
        let announced = self.leases.get(&lease).and_then(|of| of.announced.as_ref());
        if let Some(cause) = announced.map(|announced| announced.cause.clone()) {
            self.begin_end(lease, cause);
        }
    }

    /// Begins the end of a lease, or speeds it up. The first cause stays.
    pub(super) fn begin_end(&mut self, lease: LeaseId, cause: Cause) {
        let Some(of) = self.leases.get_mut(&lease) else { return };
        let grace = cause.has_grace() && !self.config.grace.is_zero();
        match &of.phase {
            Phase::Killing { .. } => return,
            Phase::Draining { .. } => {
                if !grace {
                    self.kill(lease);
                }
                return;
            }
            Phase::Granted | Phase::Starting { .. } | Phase::Active { .. } => {}
        }
        let grace = grace && matches!(of.phase, Phase::Active { .. });
        self.counters.ending(&cause);
        self.actions.push_back(Action::StopAdmission { lease, cause: cause.clone() });
        of.phase = Phase::Draining { until: None, cause };
        if !grace {
            self.kill(lease);
        }
    }

    /// Ends the grace.
    pub(super) fn kill(&mut self, lease: LeaseId) {
        let Some(of) = self.leases.get_mut(&lease) else { return };
        let Phase::Draining { cause, .. } = &of.phase else { return };
        of.phase = Phase::Killing { by: None, cause: cause.clone() };
        self.actions.push_back(Action::KillWorker { lease });
        self.withdraw_session(lease);
    }

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

    /// Reports that the worker of a lease could not be started. The lease ends without grace, as after
    /// [`worker_died`](Self::worker_died). Returns whether the lease waited for its worker.
    pub fn worker_not_started(&mut self, now: Duration, lease: LeaseId, reason: String) -> bool {
        self.advance(now);
        let is_starting =
            self.leases.get(&lease).is_some_and(|of| matches!(of.phase, Phase::Starting { .. }));
        if is_starting {
            self.begin_end(lease, Cause::NotStarted { reason });
        }
        is_starting
    }

    /// Reports that the worker of a lease died; `host_memory` is the limit of its host memory if it died because it went
    /// beyond. The lease ends without grace; `KillWorker` follows, and `worker_gone` answers it. Returns whether this had
    /// an effect.
    pub fn worker_died(&mut self, now: Duration, lease: LeaseId, host_memory: Option<u64>) -> bool {
        self.advance(now);
        let phase = self.leases.get(&lease).map(|of| &of.phase);
        if matches!(phase, None | Some(Phase::Granted | Phase::Killing { .. })) {
            return false;
        }
        let out_of_memory = |limit| Cause::OutOfHostMemory { limit };
        self.begin_end(lease, host_memory.map_or(Cause::WorkerDied, out_of_memory));
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

    /// Reports that the kernel works on the end of a worker that was killed. The time for that begins again: to free much
    /// memory takes a while, more so on a busy machine. Returns whether the report had an effect.
    pub fn worker_ends(&mut self, now: Duration, lease: LeaseId) -> bool {
        self.advance(now);
        let by_then = self.now.saturating_add(self.config.kill_timeout);
        match self.leases.get_mut(&lease).map(|of| &mut of.phase) {
            Some(Phase::Killing { by: Some(by), .. }) => {
                *by = by_then;
                true
            }
            _ => false,
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
