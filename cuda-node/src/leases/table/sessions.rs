//! Sessions of session-exclusive leases.

use std::time::Duration;

use super::{
    super::{
        action::Action,
        ids::{LeaseId, SlotId},
        lease::{Lease, Phase},
        request::Exclusivity,
    },
    LeaseTable,
};

impl LeaseTable {
    /// Reports that a session-exclusive lease has work. It runs after the sessions that wait already;
    /// `RunSession` follows when it may. A session whose kernel never completes runs until its lease ends. Returns
    /// whether the session now waits or runs because of this report.
    pub fn session_busy(&mut self, now: Duration, lease: LeaseId) -> bool {
        self.advance(now);
        let Some(of) = self.leases.get(&lease) else { return false };
        let is_active = matches!(of.phase, Phase::Active { .. });
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
        let was_queued = self.slot_of(lease).is_some_and(|slot| slot.sessions.leave_queue(lease));
        self.stop_session(lease, false) || was_queued
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
    pub(super) fn pause_overrun_sessions(&mut self) {
        let (now, slice) = (self.now, self.config.time_slice);
        let overrun = self.slots.iter_mut().filter_map(|slot| slot.sessions.overrun(now, slice));
        self.actions.extend(overrun.map(|lease| Action::PauseSession { lease }));
    }

    /// Withdraws the session of a lease whose worker is being killed.
    pub(super) fn withdraw_session(&mut self, lease: LeaseId) {
        if let Some(slot) = self.slot_of(lease) {
            slot.sessions.withdraw(lease);
        }
    }

    /// Starts the next session, if none runs. A fenced slot starts no session: a worker of it may still run.
    pub(super) fn run_next_session(&mut self, slot: SlotId) {
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

    fn slot_of(&mut self, lease: LeaseId) -> Option<&mut super::Slot> {
        let slot = self.leases.get(&lease)?.slot;
        self.slots.get_mut(slot.0)
    }
}
