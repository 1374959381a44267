//! The sessions of a slot: one runs, the others wait. Deficit round robin over time.

use std::{collections::VecDeque, time::Duration};

use super::request::LeaseId;

/// The maximum debt of a session that overruns a time slice, in time slices. It bounds the wait of a session after one
/// very long kernel.
const MAX_DEBT: u32 = 16;

/// The session that runs.
#[derive(Debug)]
struct Running {
    lease: LeaseId,
    /// The start of its time slice: the poll of `RunSession`, or the later time from which another session waits.
    since: Option<Duration>,
    /// Whether `PauseSession` was emitted.
    pausing: bool,
}

/// The session of one slot that runs, and the sessions with work that wait.
///
/// Deficit round robin: a session that overruns its time slice while others wait gets a debt of that time, and is
/// skipped for as many time slices. Time during which no other session waits is not charged.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    running: Option<Running>,
    /// The run queue: the sessions that wait.
    queue: VecDeque<LeaseId>,
    /// The debts of the sessions that have overrun earlier time slices.
    debts: Vec<(LeaseId, Duration)>,
    /// The sessions of an earlier node, of which one may have work in flight. None runs before that is known.
    unsettled: Vec<LeaseId>,
}

impl Sessions {
    pub(super) fn running(&self) -> Option<LeaseId> {
        self.running.as_ref().map(|running| running.lease)
    }

    /// Adds a session of an earlier node, which may have work in flight.
    pub(super) fn restore(&mut self, lease: LeaseId) {
        self.unsettled.push(lease);
    }

    /// Notes that a session has no work in flight from the time of an earlier node.
    pub(super) fn settle(&mut self, lease: LeaseId) {
        self.unsettled.retain(|other| *other != lease);
    }

    /// Puts a session at the end of the run queue. Returns whether it neither waited nor ran.
    pub(super) fn join(&mut self, now: Duration, lease: LeaseId) -> bool {
        if self.running() == Some(lease) || self.queue.contains(&lease) {
            return false;
        }
        self.queue.push_back(lease);
        if let Some(Running { since: Some(since), .. }) = &mut self.running
            && self.queue.len() == 1
        {
            // The time alone on the device takes nothing from others.
            *since = now;
        }
        true
    }

    /// Withdraws a session whose worker is being killed: it leaves the run queue. If it runs, it counts as running
    /// until it is removed, because its work may still run, and it is not paused any more.
    pub(super) fn withdraw(&mut self, lease: LeaseId) {
        self.leave_queue(lease);
        if let Some(running) = self.running.as_mut().filter(|of| of.lease == lease) {
            running.pausing = true;
        }
    }

    /// Takes a session out of the run queue. Returns whether it waited.
    pub(super) fn leave_queue(&mut self, lease: LeaseId) -> bool {
        let before = self.queue.len();
        self.queue.retain(|other| *other != lease);
        self.queue.len() != before
    }

    /// Stops this session, and charges the time by which it has overrun. With `again` it joins the end of the run
    /// queue. Returns whether it ran.
    pub(super) fn release(
        &mut self,
        now: Duration,
        lease: LeaseId,
        slice: Duration,
        again: bool,
    ) -> bool {
        let Some(running) = self.running.take_if(|running| running.lease == lease) else {
            return false;
        };
        let used = now.saturating_sub(running.since.unwrap_or(now));
        let overrun = used.saturating_sub(slice);
        if !self.queue.is_empty() && !overrun.is_zero() {
            let debt = self.take_debt(lease).saturating_add(overrun);
            self.debts.push((lease, debt.min(slice.saturating_mul(MAX_DEBT))));
        }
        if again {
            self.queue.push_back(lease);
        }
        true
    }

    /// Removes all of an ended session. Returns whether it ran.
    pub(super) fn remove(&mut self, lease: LeaseId) -> bool {
        self.leave_queue(lease);
        self.take_debt(lease);
        self.settle(lease);
        self.running.take_if(|running| running.lease == lease).is_some()
    }

    /// Starts the next session, if none runs. Returns that session.
    pub(super) fn next(&mut self, slice: Duration) -> Option<LeaseId> {
        if self.running.is_some() || !self.unsettled.is_empty() {
            return None;
        }
        // Every pass over the run queue reduces each debt by a time slice, so this ends after MAX_DEBT passes.
        while let Some(lease) = self.queue.pop_front() {
            let debt = self.take_debt(lease);
            let left = debt.saturating_sub(slice);
            if debt < slice || slice.is_zero() {
                if !debt.is_zero() {
                    self.debts.push((lease, debt));
                }
                self.running = Some(Running { lease, since: None, pausing: false });
                return Some(lease);
            }
            if !left.is_zero() {
                self.debts.push((lease, left));
            }
            self.queue.push_back(lease);
        }
        None
    }

    /// Notes that the supervisor has polled `RunSession`.
    pub(super) fn started(&mut self, now: Duration, lease: LeaseId) {
        if let Some(running) = self.running.as_mut().filter(|of| of.lease == lease) {
            running.since = Some(now);
        }
    }

    /// The end of the time slice, if another session waits.
    pub(super) fn deadline(&self, slice: Duration) -> Option<Duration> {
        let running = self.running.as_ref().filter(|of| !of.pausing && !self.queue.is_empty())?;
        Some(running.since?.saturating_add(slice))
    }

    /// The session whose time slice is over. Returns it once.
    pub(super) fn overrun(&mut self, now: Duration, slice: Duration) -> Option<LeaseId> {
        if self.deadline(slice)? > now {
            return None;
        }
        let running = self.running.as_mut()?;
        running.pausing = true;
        Some(running.lease)
    }

    fn take_debt(&mut self, lease: LeaseId) -> Duration {
        let index = self.debts.iter().position(|(other, _)| *other == lease);
        index.map_or(Duration::ZERO, |index| self.debts.swap_remove(index).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Two sessions that always have work, the first with kernels of `long`, run for `total`. Returns their times.
    fn run_two(long: u64, total: u64) -> [u64; 2] {
        let mut sessions = Sessions::default();
        sessions.join(at(0), LeaseId(0));
        sessions.join(at(0), LeaseId(1));
        let mut now = 0;
        let mut used = [0; 2];
        while now < total {
            let lease = sessions.next(SLICE).unwrap();
            sessions.started(at(now), lease);
            let time = if lease == LeaseId(0) { long } else { 100 };
            now += time;
            used[lease.0 as usize] += time;
            assert!(sessions.release(at(now), lease, SLICE, true));
        }
        used
    }

    #[test]
    fn sessions_with_short_kernels_alternate() {
        assert_eq!(run_two(100, 10_000), [5_000, 5_000]);
    }

    #[test]
    fn time_is_fair_when_one_session_overruns_its_time_slices() {
        let [long, short] = run_two(350, 100_000);
        assert!(long.abs_diff(short) < 2_000, "{long} ms and {short} ms");
    }

    #[test]
    fn a_session_keeps_its_debt_while_it_is_idle() {
        let mut sessions = Sessions::default();
        let [long, short] = [LeaseId(0), LeaseId(1)];
        sessions.join(at(0), long);
        sessions.join(at(0), short);
        assert_eq!(sessions.next(SLICE), Some(long));
        sessions.started(at(0), long);
        sessions.release(at(300), long, SLICE, false);
        sessions.join(at(300), long);
        for now in [300, 400, 500] {
            assert_eq!(sessions.next(SLICE), Some(short));
            sessions.started(at(now), short);
            sessions.release(at(now + 100), short, SLICE, true);
        }
        assert_eq!(sessions.next(SLICE), Some(long));
    }

    #[test]
    fn debt_is_bounded() {
        let [long, short] = run_two(10_000, 100_000);
        assert!(short * 5 < long, "{long} ms and {short} ms");
        assert!(short >= 10 * 100 * u64::from(MAX_DEBT) * 8 / 10, "{short} ms");
    }

    #[test]
    fn a_session_alone_has_no_deadline_and_no_debt() {
        let mut sessions = Sessions::default();
        sessions.join(at(0), LeaseId(0));
        assert_eq!(sessions.next(SLICE), Some(LeaseId(0)));
        sessions.started(at(0), LeaseId(0));
        assert_eq!(sessions.deadline(SLICE), None);
        sessions.join(at(5_000), LeaseId(1));
        assert_eq!(sessions.deadline(SLICE), Some(at(5_100)));
    }

    #[test]
    fn a_session_joins_once() {
        let mut sessions = Sessions::default();
        assert!(sessions.join(at(0), LeaseId(0)));
        assert!(!sessions.join(at(0), LeaseId(0)));
        sessions.next(SLICE);
        assert!(!sessions.join(at(0), LeaseId(0)));
        assert!(!sessions.release(at(0), LeaseId(1), SLICE, true));
    }
}
