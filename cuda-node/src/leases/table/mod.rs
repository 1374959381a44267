//! The table itself.
//!
//! This file has the state, the clock and the outputs, and schedules sessions. `admission` checks requests, puts
//! admissible ones into the queue, and gives waiting ones their leases. `life` moves leases from grant to end, takes
//! the reports about workers, and fences slots. `kept` passes leases on to a later table.

mod admission;
mod kept;
mod life;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

pub use self::kept::KeptLease;
use super::{
    config::{ConfigError, SlotConfig, TableConfig},
    lease::{Cause, Due, EndedLeases, Lease, Phase},
    output::{Action, Counters, LeaseView, SlotView},
    request::{Exclusivity, LeaseId, Queue, Refusal, SlotId},
    reservations::Reservations,
    slot::Slot,
};
use crate::quotas::Quotas;

/// The leases of a node. [`leases`](super) documents the life of a lease and the use of this type.
///
/// After every call, poll the actions until there is none. Call [`poll`](Self::poll) again at
/// [`next_deadline`](Self::next_deadline).
///
/// The table trusts its caller: the caller has verified that a request comes from its tenant, and that a client that
/// names a lease owns it.
#[derive(Debug)]
pub struct LeaseTable {
    config: TableConfig,
    quotas: Quotas,
    slots: Vec<Slot>,
    leases: BTreeMap<LeaseId, Lease>,
    queue: Queue,
    reservations: Reservations,
    ended: EndedLeases,
    actions: VecDeque<Action>,
    counters: Counters,
    now: Duration,
    /// The next id of a lease or a request.
    next_id: u64,
}

impl LeaseTable {
    /// A table without leases. The ids of slots are their positions in `slots`.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(
        config: TableConfig,
        slots: Vec<SlotConfig>,
        quotas: Quotas,
    ) -> Result<LeaseTable, ConfigError> {
        config.check(&slots)?;
        let reservations = Reservations::new(config.max_reservation);
        Ok(LeaseTable {
            config,
            quotas,
            slots: slots.into_iter().map(Slot::new).collect(),
            leases: BTreeMap::new(),
            queue: Queue::default(),
            reservations,
            ended: EndedLeases::default(),
            actions: VecDeque::new(),
            counters: Counters::default(),
            now: Duration::ZERO,
            next_id: 1,
        })
    }

    /// Replaces the quotas. They hold for later requests and renewals; leases and queued requests stay.
    pub fn set_quotas(&mut self, quotas: Quotas) {
        self.quotas = quotas;
    }

    /// The next action. Actions are in the order of their causes. A caller that polls after every call leaves none
    /// behind; otherwise at most six per lease and one per request are pending.
    pub fn poll(&mut self, now: Duration) -> Option<Action> {
        self.advance(now);
        let action = self.actions.pop_front()?;
        self.start_deadline_of(&action);
        Some(action)
    }

    /// The time at which [`poll`](Self::poll) may have an action, if no other method is called before. It is in the
    /// past while actions are pending. `None` if time alone causes none.
    pub fn next_deadline(&self) -> Option<Duration> {
        if !self.actions.is_empty() {
            return Some(self.now);
        }
        let leases = self.leases.values().filter_map(|lease| lease.due().map(|(at, _)| at));
        let slices =
            self.slots.iter().filter_map(|slot| slot.sessions.deadline(self.config.time_slice));
        let queue = self.queue.deadline().into_iter().chain(self.reservations.deadline());
        leases.chain(slices).chain(queue).min()
    }

    /// Moves the clock, and performs everything that is due.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        let is_due = |lease: &Lease| lease.due().filter(|(at, _)| *at <= self.now);
        let due =
            self.leases.iter().filter_map(|(id, lease)| is_due(lease).map(|(_, due)| (*id, due)));
        // Deadlines that these steps start are not due: they begin when their action is polled.
        for (lease, due) in due.collect::<Vec<_>>() {
            match due {
                Due::StartTimedOut => self.begin_end(lease, Cause::StartTimedOut),
                Due::Expired => self.begin_end(lease, Cause::Expired),
                Due::NoticePeriodOver => self.execute_announced_end(lease),
                Due::Disconnected => self.begin_end(lease, Cause::Disconnected),
                Due::GraceOver => self.kill(lease),
                Due::KillOverdue => self.lose_worker(lease),
            }
        }
        self.refuse_overdue_requests();
        let of_tenants = self.reservations.advance(self.now);
        if self.queue.end_reservations(self.now) || of_tenants {
            self.serve();
        }
        self.pause_overrun_sessions();
    }

    /// Starts the deadline that begins when this action is handed out.
    fn start_deadline_of(&mut self, action: &Action) {
        let after = |length: Duration| self.now.saturating_add(length);
        let Some(id) = action.lease() else { return };
        let Some(lease) = self.leases.get_mut(&id) else { return };
        match (action, &mut lease.phase) {
            (Action::AssignWorker { .. }, phase @ Phase::Granted) => {
                *phase = Phase::Starting { by: after(self.config.start_timeout) };
            }
            (Action::StopAdmission { .. }, Phase::Draining { until, .. }) => {
                *until = Some(after(self.config.grace));
            }
            (Action::KillWorker { .. }, Phase::Killing { by, .. }) => {
                *by = Some(after(self.config.kill_timeout));
            }
            (Action::AnnounceRevocation { notice: length, .. }, _) => {
                if let Some(announced) = &mut lease.announced {
                    announced.until = Some(after(*length));
                }
            }
            (Action::RunSession { .. }, _) => {
                if let Some(slot) = self.slots.get_mut(lease.slot.0) {
                    slot.sessions.started(self.now, id);
                }
            }
            _ => {}
        }
    }

    /// An id that was never used.
    fn new_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn slot_mut(&mut self, slot: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(slot.0)
    }

    /// The answer to a request that names a lease which is not there.
    fn absent(&self, lease: LeaseId) -> Refusal {
        match self.ended.of_lease(lease) {
            Some(cause) => cause.refusal(lease),
            None => Refusal::new(
                cuda_lease::wire::Status::NotFound,
                format!(
                    "lease {lease} does not exist, or ended long ago; check the id, or request a new lease"
                ),
            ),
        }
    }

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
            announced: lease.announced.as_ref().map(|end| end.left(self.now)),
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

    /// Reports that a session-exclusive lease has work. It runs after the sessions that wait already;
    /// `RunSession` follows when it may. A session whose kernel never completes runs until its lease ends. Returns
    /// whether the session now waits or runs because of this report.
    pub fn session_busy(&mut self, now: Duration, lease: LeaseId) -> bool {
        self.advance(now);
        let Some(of) = self.leases.get(&lease) else { return false };
        let is_active = matches!(of.phase, Phase::Active { .. } | Phase::Draining { .. });
        if of.request.class != Exclusivity::Session || !is_active {
            return false;
        }
        let (id, now) = (of.slot, self.now);
        let joined = self.slot_mut(id).is_some_and(|slot| slot.sessions.join(now, lease));
        self.run_next_session(id);
        joined
    }

    /// Reports that a session has no more work, queued or in flight. It no longer waits or runs. Returns whether it
    /// did.
    pub fn session_idle(&mut self, now: Duration, lease: LeaseId) -> bool {
        self.advance(now);
        let was_queued = self.slot_of(lease).is_some_and(|slot| {
            slot.sessions.settle(lease);
            slot.sessions.leave_queue(lease)
        });
        let has_stopped = self.stop_session(lease, false);
        if let Some(slot) = self.leases.get(&lease).map(|of| of.slot) {
            self.run_next_session(slot);
        }
        has_stopped || was_queued
    }

    /// Answers `PauseSession`: the session has no work in flight, but more to do. It waits behind the other sessions.
    /// Returns whether it ran.
    pub fn session_paused(&mut self, now: Duration, lease: LeaseId) -> bool {
        self.advance(now);
        let is_killed = |of: &Lease| matches!(of.phase, Phase::Killing { .. });
        let again = self.leases.get(&lease).is_some_and(|of| !is_killed(of));
        self.stop_session(lease, again)
    }

    /// Pauses the sessions whose time slice is over.
    fn pause_overrun_sessions(&mut self) {
        let (now, slice) = (self.now, self.config.time_slice);
        let overrun = self.slots.iter_mut().filter_map(|slot| slot.sessions.overrun(now, slice));
        self.actions.extend(overrun.map(|lease| Action::PauseSession { lease }));
    }

    /// Withdraws the session of a lease whose worker is being killed.
    fn withdraw_session(&mut self, lease: LeaseId) {
        if let Some(slot) = self.slot_of(lease) {
            slot.sessions.withdraw(lease);
        }
    }

    /// Starts the next session, if none runs. A fenced slot starts no session: a worker of it may still run.
    fn run_next_session(&mut self, slot: SlotId) {
        let slice = self.config.time_slice;
        let Some(of) = self.slot_mut(slot).filter(|slot| !slot.fenced) else { return };
        if let Some(lease) = of.sessions.next(slice) {
            self.actions.push_back(Action::RunSession { lease });
        }
    }

    fn stop_session(&mut self, lease: LeaseId, again: bool) -> bool {
        let (now, slice) = (self.now, self.config.time_slice);
        let Some(id) = self.leases.get(&lease).map(|of| of.slot) else { return false };
        let released =
            self.slot_mut(id).is_some_and(|of| of.sessions.release(now, lease, slice, again));
        if released {
            // Pending actions of the time slice that is over.
            self.actions.retain(|action| match action {
                Action::RunSession { lease: of } | Action::PauseSession { lease: of } => {
                    *of != lease
                }
                _ => true,
            });
            self.run_next_session(id);
        }
        released
    }

    fn slot_of(&mut self, lease: LeaseId) -> Option<&mut Slot> {
        let slot = self.leases.get(&lease)?.slot;
        self.slots.get_mut(slot.0)
    }
}
