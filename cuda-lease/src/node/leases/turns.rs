//! The order in which the sessions of a slot run: deficit round robin over time.

use std::{collections::VecDeque, time::Duration};

use super::lease::LeaseId;

/// The longest time, in turns, that a session owes to the others after it has overrun its turn. It bounds the wait of
/// a session after one very long kernel.
const MAX_DEBT: u32 = 16;

/// The session that has the turn.
#[derive(Debug)]
struct Holder {
    lease: LeaseId,
    /// The begin of the turn: the poll of `RunSession`, or the later time from which another session waits.
    since: Option<Duration>,
    /// Whether `PauseSession` was emitted.
    pausing: bool,
}

/// The turn of one slot, and the sessions with work that wait for it.
///
/// A session that overruns its turn while others wait owes that time: it is passed over for as many turns in which
/// another session waits. The time of a session alone is free.
#[derive(Debug, Default)]
pub(super) struct Turns {
    holder: Option<Holder>,
    line: VecDeque<LeaseId>,
    /// The time by which sessions have overrun earlier turns, for sessions that owe any.
    debts: Vec<(LeaseId, Duration)>,
}

impl Turns {
    pub(super) fn holder(&self) -> Option<LeaseId> {
        self.holder.as_ref().map(|holder| holder.lease)
    }

    /// Puts a session at the end of the line. Returns whether it neither waited nor had the turn.
    pub(super) fn join(&mut self, now: Duration, lease: LeaseId) -> bool {
        if self.holder() == Some(lease) || self.line.contains(&lease) {
            return false;
        }
        self.line.push_back(lease);
        if let Some(Holder { since: Some(since), .. }) = &mut self.holder
            && self.line.len() == 1
        {
            // The time alone on the device takes nothing from others.
            *since = now;
        }
        true
    }

    /// Withdraws a session whose worker is being killed: it leaves the line. If it has the turn, it keeps it until it is
    /// removed, because its work may still run, and it is not paused any more.
    pub(super) fn withdraw(&mut self, lease: LeaseId) {
        self.leave_line(lease);
        if let Some(holder) = self.holder.as_mut().filter(|of| of.lease == lease) {
            holder.pausing = true;
        }
    }

    /// Takes a session out of the line.
    pub(super) fn leave_line(&mut self, lease: LeaseId) -> bool {
        let before = self.line.len();
        self.line.retain(|other| *other != lease);
        self.line.len() != before
    }

    /// Ends the turn of this session, and charges the time by which it has overrun. With `again` it joins the end of
    /// the line. Returns whether it had the turn.
    pub(super) fn release(
        &mut self,
        now: Duration,
        lease: LeaseId,
        turn: Duration,
        again: bool,
    ) -> bool {
        let Some(holder) = self.holder.take_if(|holder| holder.lease == lease) else {
            return false;
        };
        let used = now.saturating_sub(holder.since.unwrap_or(now));
        let overrun = used.saturating_sub(turn);
        if !self.line.is_empty() && !overrun.is_zero() {
            let debt = self.take_debt(lease).saturating_add(overrun);
            self.debts.push((lease, debt.min(turn.saturating_mul(MAX_DEBT))));
        }
        if again {
            self.line.push_back(lease);
        }
        true
    }

    /// Removes all of an ended session. Returns whether it had the turn.
    pub(super) fn remove(&mut self, lease: LeaseId) -> bool {
        self.leave_line(lease);
        self.take_debt(lease);
        self.holder.take_if(|holder| holder.lease == lease).is_some()
    }

    /// Gives a free turn to the next session. Returns that session.
    pub(super) fn next(&mut self, turn: Duration) -> Option<LeaseId> {
        if self.holder.is_some() {
            return None;
        }
        // Every pass over the line reduces each debt by a turn, so this ends after MAX_DEBT passes.
        while let Some(lease) = self.line.pop_front() {
            let debt = self.take_debt(lease);
            let left = debt.saturating_sub(turn);
            if debt < turn || turn.is_zero() {
                if !debt.is_zero() {
                    self.debts.push((lease, debt));
                }
                self.holder = Some(Holder { lease, since: None, pausing: false });
                return Some(lease);
            }
            if !left.is_zero() {
                self.debts.push((lease, left));
            }
            self.line.push_back(lease);
        }
        None
    }

    /// Notes that the supervisor has polled `RunSession`.
    pub(super) fn started(&mut self, now: Duration, lease: LeaseId) {
        if let Some(holder) = self.holder.as_mut().filter(|of| of.lease == lease) {
            holder.since = Some(now);
        }
    }

    /// The end of the turn, if another session waits for it.
    pub(super) fn deadline(&self, turn: Duration) -> Option<Duration> {
        let holder = self.holder.as_ref().filter(|of| !of.pausing && !self.line.is_empty())?;
        Some(holder.since?.saturating_add(turn))
    }

    /// The session whose turn is over. Returns it once.
    pub(super) fn overrun(&mut self, now: Duration, turn: Duration) -> Option<LeaseId> {
        if self.deadline(turn)? > now {
            return None;
        }
        let holder = self.holder.as_mut()?;
        holder.pausing = true;
        Some(holder.lease)
    }

    fn take_debt(&mut self, lease: LeaseId) -> Duration {
        let index = self.debts.iter().position(|(other, _)| *other == lease);
        index.map_or(Duration::ZERO, |index| self.debts.swap_remove(index).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Two sessions that always have work, the first with kernels of `long`, run for `total`. Returns their times.
    fn run_two(long: u64, total: u64) -> [u64; 2] {
        let mut turns = Turns::default();
        turns.join(at(0), LeaseId(0));
        turns.join(at(0), LeaseId(1));
        let mut now = 0;
        let mut used = [0; 2];
        while now < total {
            let lease = turns.next(TURN).unwrap();
            turns.started(at(now), lease);
            let time = if lease == LeaseId(0) { long } else { 100 };
            now += time;
            used[lease.0 as usize] += time;
            assert!(turns.release(at(now), lease, TURN, true));
        }
        used
    }

    #[test]
    fn sessions_with_short_kernels_alternate() {
        assert_eq!(run_two(100, 10_000), [5_000, 5_000]);
    }

    #[test]
    fn time_is_fair_when_one_session_overruns_its_turns() {
        let [long, short] = run_two(350, 100_000);
        assert!(long.abs_diff(short) < 2_000, "{long} ms and {short} ms");
    }

    #[test]
    fn debt_is_bounded() {
        let [long, short] = run_two(10_000, 100_000);
        assert!(short * 5 < long, "{long} ms and {short} ms");
        assert!(short >= 10 * 100 * u64::from(MAX_DEBT) * 8 / 10, "{short} ms");
    }

    #[test]
    fn a_session_alone_has_no_deadline_and_no_debt() {
        let mut turns = Turns::default();
        turns.join(at(0), LeaseId(0));
        assert_eq!(turns.next(TURN), Some(LeaseId(0)));
        turns.started(at(0), LeaseId(0));
        assert_eq!(turns.deadline(TURN), None);
        turns.join(at(5_000), LeaseId(1));
        assert_eq!(turns.deadline(TURN), Some(at(5_100)));
    }

    #[test]
    fn a_session_joins_once() {
        let mut turns = Turns::default();
        assert!(turns.join(at(0), LeaseId(0)));
        assert!(!turns.join(at(0), LeaseId(0)));
        turns.next(TURN);
        assert!(!turns.join(at(0), LeaseId(0)));
        assert!(!turns.release(at(0), LeaseId(1), TURN, true));
    }
}
