//! Decides when a checkpoint is enqueued behind the work of a stream. The number of checkpoints in flight is bounded
//! for any number of waiting callers.
//!
//! # Rules
//! - `events` is locked while a checkpoint is enqueued, so they reach the driver in order. A thread that only wants a
//!   report does not wait for it: if it finds it locked, it has stored its number in `wanted`, and the holder looks there
//!   again after it released the lock.
//! - The number of a checkpoint is the stream's `accepted`, read before the checkpoint is enqueued. So every submission
//!   up to that number is ahead of the checkpoint in the stream.
//! - `covered` is the last number that the completion thread will report because of a checkpoint. `enqueued` is the
//!   last number for which the driver took a checkpoint. They differ while the driver refuses checkpoints. The
//!   completion thread then queries the stream.

use super::CheckpointEvents;
use crate::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
    limit,
};

/// The number of checkpoints that a stream may have in flight, each with an event of its own. Further callers share the
/// next checkpoint, so they also wait for later submissions.
pub(crate) const MAX_CHECKPOINTS: u32 = limit(4, 1) as u32;

#[derive(Default)]
pub(crate) struct Reports {
    events: Mutex<CheckpointEvents>,
    /// The largest number that a caller waits for.
    wanted: AtomicU64,
    /// Stored by the holder of `events`.
    covered: AtomicU64,
    /// Stored by the holder of `events`.
    enqueued: AtomicU64,
    in_flight: AtomicU32,
}

impl Reports {
    /// Whether a report that covers this number was delivered or will be.
    #[inline]
    pub(crate) fn covers(&self, number: u64) -> bool {
        self.covered.load(Ordering::Acquire) >= number
    }

    /// The last number for which the driver took a checkpoint.
    pub(crate) fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::Acquire)
    }

    /// Requests a report that covers `number`, a submission that the driver took. The checkpoint is enqueued now, or
    /// when an earlier one was passed. `accepted` reads the number of the last submission that the driver took.
    /// `enqueue` enqueues a checkpoint for a number and puts an entry into the inbox of the completion thread. It
    /// returns whether the driver took the checkpoint.
    pub(crate) fn want(
        &self,
        number: u64,
        accepted: impl Fn() -> u64,
        enqueue: impl Fn(u64, &mut CheckpointEvents) -> bool,
    ) {
        self.wanted.fetch_max(number, Ordering::SeqCst);
        self.ask(accepted, enqueue);
    }

    /// Counts checkpoints that were passed as no longer in flight.
    pub(crate) fn passed(&self, checkpoints: u32) {
        self.in_flight.fetch_sub(checkpoints, Ordering::SeqCst);
    }

    /// Enqueues a checkpoint if a caller waits for a number beyond `covered`, and fewer than [`MAX_CHECKPOINTS`] are in
    /// flight.
    pub(crate) fn ask(
        &self,
        accepted: impl Fn() -> u64,
        enqueue: impl Fn(u64, &mut CheckpointEvents) -> bool,
    ) {
        while self.is_due() {
            let Some(mut events) = self.events.try_lock() else { return };
            if self.is_due() {
                self.checkpoint(&mut events, &accepted, &enqueue);
            }
            drop(events);
            // Orders the unlock before the next look: of two threads, one sees the other's number.
            fence(Ordering::SeqCst);
        }
    }

    /// Enqueues a checkpoint if the driver took none for the last report.
    pub(crate) fn renew(
        &self,
        accepted: impl Fn() -> u64,
        enqueue: impl Fn(u64, &mut CheckpointEvents) -> bool,
    ) {
        {
            let mut events = self.events.lock();
            if self.covered.load(Ordering::Relaxed) > self.enqueued.load(Ordering::Relaxed) {
                self.checkpoint(&mut events, &accepted, &enqueue);
            }
        }
        fence(Ordering::SeqCst);
        self.ask(accepted, enqueue);
    }

    /// Runs `change` while no thread enqueues a checkpoint.
    pub(crate) fn without_checkpoints<T>(&self, change: impl FnOnce() -> T) -> T {
        let _not_now = self.events.lock();
        change()
    }

    /// The events, of a stream that was dropped.
    pub(super) fn events(&mut self) -> &mut CheckpointEvents {
        self.events.get_mut()
    }

    fn checkpoint(
        &self,
        events: &mut CheckpointEvents,
        accepted: &impl Fn() -> u64,
        enqueue: &impl Fn(u64, &mut CheckpointEvents) -> bool,
    ) {
        let value = accepted();
        // Before the checkpoint, which may be passed at once.
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        if enqueue(value, events) {
            self.enqueued.store(value, Ordering::Release);
        }
        self.covered.store(value, Ordering::Release);
    }

    fn is_due(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > self.covered.load(Ordering::Acquire)
            && self.in_flight.load(Ordering::SeqCst) < MAX_CHECKPOINTS
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Keeps the numbers that were enqueued.
    #[derive(Default)]
    struct Driver {
        values: RefCell<Vec<u64>>,
        refuses: bool,
    }

    impl Driver {
        fn enqueue(&self) -> impl Fn(u64, &mut CheckpointEvents) -> bool + '_ {
            |value, _| {
                self.values.borrow_mut().push(value);
                !self.refuses
            }
        }
    }

    fn accepted(number: u64) -> impl Fn() -> u64 {
        move || number
    }

    #[test]
    fn one_checkpoint_covers_everything_accepted() {
        let (reports, driver) = (Reports::default(), Driver::default());
        reports.want(2, accepted(5), driver.enqueue());
        reports.want(5, accepted(6), driver.enqueue());
        reports.want(6, accepted(6), driver.enqueue());
        assert_eq!(*driver.values.borrow(), [5, 6]);
        assert!(reports.covers(6) && !reports.covers(7));
        assert_eq!(reports.enqueued(), 6);
    }

    #[test]
    fn wants_beyond_the_limit_share_the_next_checkpoint() {
        let (reports, driver) = (Reports::default(), Driver::default());
        for number in 1..=10 {
            reports.want(number, accepted(number), driver.enqueue());
        }
        assert_eq!(*driver.values.borrow(), [1, 2, 3, 4]);
        reports.passed(1);
        reports.ask(accepted(10), driver.enqueue());
        reports.passed(1);
        reports.ask(accepted(12), driver.enqueue());
        assert_eq!(*driver.values.borrow(), [1, 2, 3, 4, 10]);
    }

    #[test]
    fn refused_checkpoint_is_covered_and_renewed_later() {
        let (reports, driver) = (Reports::default(), Driver { refuses: true, ..Driver::default() });
        reports.want(1, accepted(1), driver.enqueue());
        assert!(reports.covers(1));
        assert_eq!(reports.enqueued(), 0);
        let driver = Driver::default();
        reports.renew(accepted(1), driver.enqueue());
        reports.renew(accepted(1), driver.enqueue());
        assert_eq!(*driver.values.borrow(), [1]);
        assert_eq!(reports.enqueued(), 1);
    }
}
