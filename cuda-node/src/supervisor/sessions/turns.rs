//! Turns of a session-exclusive lease: its commands reach the worker only while it has the turn.
//!
//! A session asks for the turn when commands arrive. It gives the turn back when the worker has completed everything,
//! or when the lease table pauses it and the work in flight is complete.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// A report of a session to the lease table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::supervisor) enum Turn {
    /// It has work.
    Busy,
    /// It has no work in flight. If commands wait, a report that it is busy follows.
    Idle,
}

/// The turns of one session.
pub(in crate::supervisor) struct Turns {
    /// The commands that were passed to the worker.
    passed: AtomicU64,
    /// Commands were passed to the worker since the last request to drain.
    pub(super) has_passed: Notify,
    /// The commands after which the worker was drained.
    drained: AtomicU64,
    /// Set while the session does not have the turn.
    is_paused: AtomicBool,
    report: Box<dyn Fn(Turn) + Send + Sync>,
}

impl Turns {
    pub(in crate::supervisor) fn new(report: impl Fn(Turn) + Send + Sync + 'static) -> Self {
        Self {
            passed: AtomicU64::new(0),
            has_passed: Notify::new(),
            drained: AtomicU64::new(0),
            is_paused: AtomicBool::new(false),
            report: Box::new(report),
        }
    }

    pub(super) fn report(&self, turn: Turn) {
        (self.report)(turn);
    }

    /// A command was passed to the worker.
    pub(super) fn pass(&self) {
        self.passed.fetch_add(1, Ordering::SeqCst);
        self.has_passed.notify_one();
    }

    /// The number of the next request to drain.
    pub(super) fn request(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }

    /// The worker has completed everything up to a request. `set_running` opens or closes the lane of commands.
    pub(super) fn drained(&self, request: u64, set_running: impl Fn(bool)) {
        self.drained.store(request, Ordering::SeqCst);
        if self.passed.load(Ordering::SeqCst) != request {
            return;
        }
        set_running(false);
        // A command may have passed just before that.
        if self.passed.load(Ordering::SeqCst) == request {
            self.report(Turn::Idle);
        } else if !self.is_paused.load(Ordering::SeqCst) {
            set_running(true);
        }
    }

    /// Applies `RunSession` or `PauseSession` of the lease table.
    pub(super) fn set(&self, has_turn: bool, set_running: impl Fn(bool)) {
        self.is_paused.store(!has_turn, Ordering::SeqCst);
        set_running(has_turn);
        let is_idle = self.drained.load(Ordering::SeqCst) == self.passed.load(Ordering::SeqCst);
        if !has_turn && is_idle {
            self.report(Turn::Idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn turn_is_given_back_when_everything_is_complete() {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let own = reports.clone();
        let turns = Turns::new(move |turn| own.lock().unwrap().push(turn));
        turns.pass();
        let request = turns.request();
        turns.pass();
        turns.drained(request, |_| panic!("a command is in flight"));
        assert!(reports.lock().unwrap().is_empty());
        let lane = Mutex::new(true);
        turns.drained(turns.request(), |is_running| *lane.lock().unwrap() = is_running);
        assert_eq!((*reports.lock().unwrap()).as_slice(), [Turn::Idle]);
        assert!(!*lane.lock().unwrap());
    }

    #[test]
    fn session_without_work_gives_the_turn_back_at_once() {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let own = reports.clone();
        let turns = Turns::new(move |turn| own.lock().unwrap().push(turn));
        turns.set(true, |_| ());
        turns.set(false, |_| ());
        assert_eq!((*reports.lock().unwrap()).as_slice(), [Turn::Idle]);
    }
}
