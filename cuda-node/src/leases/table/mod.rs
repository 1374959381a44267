//! The table itself: one file a part of its behavior.
//!
//! This file has the state, the clock and the outputs. `requests` checks requests and puts admissible ones into the
//! queue; `serve` gives waiting requests their leases; `life` moves leases from grant to end; `workers` takes the
//! reports about workers and fences slots; `sessions` schedules sessions; `read` lists the state.

mod life;
mod read;
mod requests;
mod serve;
mod sessions;
mod workers;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::quotas::Quotas;

use super::{
    action::Action,
    config::{ConfigError, SlotConfig, TableConfig},
    counters::Counters,
    ended::EndedLeases,
    ids::{LeaseId, SlotId},
    lease::{Cause, Due, Lease, Phase},
    queue::Queue,
    request::Refusal,
    slot::Slot,
};

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
        Ok(LeaseTable {
            config,
            quotas,
            slots: slots.into_iter().map(Slot::new).collect(),
            leases: BTreeMap::new(),
            queue: Queue::default(),
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
        leases.chain(slices).chain(self.queue.deadline()).min()
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
}
