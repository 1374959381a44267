//! Turns of session-exclusive leases.

use std::time::Duration;

use super::{
    super::{
        action::Action,
        lease::{Lease, LeaseId, Phase},
        request::Exclusivity,
        slot::SlotId,
    },
    LeaseTable,
};

impl LeaseTable {
    /// Reports that a session-exclusive lease has work. It gets the turn after the sessions that wait already;
    /// `RunSession` follows when it does. A session whose kernel never completes keeps the turn until its lease ends.
    /// Returns whether the session now waits or has the turn because of this report.
    pub fn session_busy(&mut self, now: Duration, lease: LeaseId) -> bool {
        self.advance(now);
        let Some(of) = self.leases.get(&lease) else { return false };
        let is_active = matches!(of.phase, Phase::Active { .. });
        if of.request.class != Exclusivity::Session || !is_active {
            return false;
        }
        let (id, now) = (of.slot, self.now);
        let joined = self.slot_mut(id).is_some_and(|slot| slot.turns.join(now, lease));
        self.pass_turn(id);
        joined
    }

    /// Reports that a session has no more work, queued or in flight. It leaves the line, or gives up its turn. Returns
    /// whether it waited or had the turn.
    pub fn session_idle(&mut self, now: Duration, lease: LeaseId) -> bool {
        self.advance(now);
        let in_line = self.slot_of(lease).is_some_and(|slot| slot.turns.leave_line(lease));
        self.end_turn(lease, false) || in_line
    }

    /// Answers `PauseSession`: the session has no work in flight, but more to do. It waits behind the other sessions.
    /// Returns whether it had the turn.
    pub fn session_paused(&mut self, now: Duration, lease: LeaseId) -> bool {
        self.advance(now);
        let is_killed = |of: &Lease| matches!(of.phase, Phase::Killing { .. });
        let again = self.leases.get(&lease).is_some_and(|of| !is_killed(of));
        self.end_turn(lease, again)
    }

    /// Pauses the sessions whose turn is over.
    pub(super) fn pause_overrun_sessions(&mut self) {
        let (now, turn) = (self.now, self.config.turn);
        let overrun = self.slots.iter_mut().filter_map(|slot| slot.turns.overrun(now, turn));
        self.actions.extend(overrun.map(|lease| Action::PauseSession { lease }));
    }

    /// Withdraws the session of a lease whose worker is being killed.
    pub(super) fn withdraw_session(&mut self, lease: LeaseId) {
        if let Some(slot) = self.slot_of(lease) {
            slot.turns.withdraw(lease);
        }
    }

    /// Gives a free turn to the next session. A fenced slot starts no session: a worker of it may still run.
    pub(super) fn pass_turn(&mut self, slot: SlotId) {
        let turn = self.config.turn;
        let Some(of) = self.slot_mut(slot).filter(|slot| !slot.fenced) else { return };
        if let Some(lease) = of.turns.next(turn) {
            self.actions.push_back(Action::RunSession { lease });
        }
    }

    fn end_turn(&mut self, lease: LeaseId, again: bool) -> bool {
        let (now, turn) = (self.now, self.config.turn);
        let Some(id) = self.leases.get(&lease).map(|of| of.slot) else { return false };
        let released =
            self.slot_mut(id).is_some_and(|of| of.turns.release(now, lease, turn, again));
        if released {
            // Pending actions of the turn that is over.
            self.actions.retain(|action| match action {
                Action::RunSession { lease: of } | Action::PauseSession { lease: of } => {
                    *of != lease
                }
                _ => true,
            });
            self.pass_turn(id);
        }
        released
    }

    fn slot_of(&mut self, lease: LeaseId) -> Option<&mut super::Slot> {
        let slot = self.leases.get(&lease)?.slot;
        self.slots.get_mut(slot.0)
    }
}
