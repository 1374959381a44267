//! Decides when a checkpoint is enqueued behind the work of a stream. The number of checkpoints in flight is bounded
//! for any number of waiting callers.
//!
//! # Rules
//! - `events` is locked while a checkpoint is enqueued, so checkpoints reach the driver in order. If a thread that
//!   wants a report finds it locked, the thread does not wait. It has stored its number in `wanted`, and the holder
//!   reads `wanted` again after it has released the lock.
//! - The number of a checkpoint is the stream's `submitted`, read before the checkpoint is enqueued. So every
//!   submission up to that number is ahead of the checkpoint in the stream.
//! - `covered` is the number of the last entry that was put into the inbox. `enqueued` is the last number for which the
//!   driver took a checkpoint. They differ after a checkpoint was refused, or held back during a foreign call. The
//!   completion thread then queries the stream.

use arrayvec::ArrayVec;
use cuda_core::{
    internals::sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
        limit,
    },
    protocol::Result,
};

use crate::{
    context::{Bound, Primary},
    driver::api::{EventHandle, StreamHandle},
};

/// The number of checkpoints that a stream may have in flight, each with an event of its own. Further callers share the
/// next checkpoint, so they also wait for later submissions.
const MAX_CHECKPOINTS: u32 = limit(4, 1) as u32;

/// The reports of one stream that callers want, and the checkpoints for them.
#[derive(Default)]
pub(crate) struct Reports {
    events: Mutex<CheckpointEvents>,
    /// The largest number that a caller waits for.
    wanted: AtomicU64,
    /// Stored by the holder of `events`.
    covered: AtomicU64,
    /// Stored by the holder of `events`.
    enqueued: AtomicU64,
    /// The number of entries that have not ended, also of those whose checkpoint the driver refused.
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
    /// when an earlier one was passed. `submitted` reads the number of the last submission that the driver took.
    /// `enqueue` enqueues a checkpoint for a number and puts an entry into the inbox of the completion thread. It
    /// returns whether the driver took the checkpoint.
    pub(crate) fn want(
        &self,
        number: u64,
        submitted: impl Fn() -> u64,
        enqueue: impl Fn(u64, &mut CheckpointEvents) -> bool,
    ) {
        self.wanted.fetch_max(number, Ordering::SeqCst);
        self.enqueue_due(submitted, enqueue);
    }

    /// Counts these entries as ended. Called by the completion thread.
    pub(crate) fn end(&self, entries: u32) {
        self.in_flight.fetch_sub(entries, Ordering::SeqCst);
    }

    /// Enqueues a checkpoint if a caller waits for a number beyond `covered`, and fewer than [`MAX_CHECKPOINTS`] are in
    /// flight.
    pub(crate) fn enqueue_due(
        &self,
        submitted: impl Fn() -> u64,
        enqueue: impl Fn(u64, &mut CheckpointEvents) -> bool,
    ) {
        while self.is_due() {
            // Orders the store in `wanted` before the attempt to lock.
            fence(Ordering::SeqCst);
            let Some(mut events) = self.events.try_lock() else { return };
            if self.is_due() {
                self.checkpoint(&mut events, &submitted, &enqueue);
            }
            drop(events);
            // Orders the unlock before the next check. Either this thread reads the other thread's number, or that
            // thread acquires the lock.
            fence(Ordering::SeqCst);
        }
    }

    /// Enqueues a checkpoint if the last one was refused or held back. `renew` enqueues a checkpoint, and puts an entry
    /// for it into the inbox if the driver took it. It returns whether that is so.
    pub(crate) fn renew(
        &self,
        submitted: impl Fn() -> u64,
        renew: impl Fn(u64, &mut CheckpointEvents) -> bool,
    ) {
        let mut events = self.events.lock();
        if self.covered.load(Ordering::Relaxed) <= self.enqueued.load(Ordering::Relaxed) {
            return;
        }
        let number = submitted();
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        if renew(number, &mut events) {
            self.enqueued.store(number, Ordering::Release);
            self.covered.store(number, Ordering::Release);
        } else {
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The event of the earliest checkpoint that covers `number` and may be in flight.
    pub(crate) fn event_for(&self, number: u64) -> Option<EventHandle> {
        self.events.lock().event_for(number)
    }

    /// Runs `change` while no thread enqueues a checkpoint.
    pub(crate) fn without_checkpoints<T>(&self, change: impl FnOnce() -> T) -> T {
        let _events = self.events.lock();
        change()
    }

    /// Takes out the events of the stream, which is being dropped.
    pub(super) fn take_events(&mut self) -> impl Iterator<Item = EventHandle> + use<> {
        std::mem::take(&mut self.events.get_mut().events).into_iter()
    }

    fn checkpoint(
        &self,
        events: &mut CheckpointEvents,
        submitted: &impl Fn() -> u64,
        enqueue: &impl Fn(u64, &mut CheckpointEvents) -> bool,
    ) {
        let number = submitted();
        // Before the checkpoint, which may be passed at once.
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        if enqueue(number, events) {
            self.enqueued.store(number, Ordering::Release);
        }
        self.covered.store(number, Ordering::Release);
    }

    fn is_due(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > self.covered.load(Ordering::Acquire)
            && self.in_flight.load(Ordering::SeqCst) < MAX_CHECKPOINTS
    }
}

/// The events of a stream's checkpoints, recorded in turn. There are as many as a stream may have checkpoints in
/// flight, so an event is recorded again only after its last checkpoint was passed. Each is created at its first use.
#[derive(Default)]
pub(crate) struct CheckpointEvents {
    events: ArrayVec<EventHandle, { MAX_CHECKPOINTS as usize }>,
    /// The number of each event's last checkpoint.
    numbers: [u64; MAX_CHECKPOINTS as usize],
    next: usize,
}

impl CheckpointEvents {
    /// Records the next event behind everything that was enqueued on `stream`, which owns the events, as the checkpoint
    /// for `number`.
    ///
    /// # Errors
    /// The driver's error. The next call uses the same event.
    pub(crate) fn record(
        &mut self,
        stream: StreamHandle,
        number: u64,
        primary: &Primary,
        bound: &Bound,
    ) -> Result<EventHandle> {
        let event = match self.events.get(self.next) {
            Some(event) => *event,
            None => {
                let event = primary.new_event(bound)?;
                self.events.push(event);
                event
            }
        };
        // SAFETY: the caller holds the stream, which owns the event (rules 3 and 5).
        unsafe { primary.api.event_record(event, stream) }
            .map_err(|failed| primary.error(failed))?;
        self.numbers[self.next] = number;
        self.next = (self.next + 1) % MAX_CHECKPOINTS as usize;
        Ok(event)
    }

    /// The event of the earliest checkpoint that covers `number`.
    fn event_for(&self, number: u64) -> Option<EventHandle> {
        let covering =
            self.numbers.iter().zip(&self.events).filter(|(recorded, _)| **recorded >= number);
        covering.min_by_key(|(recorded, _)| **recorded).map(|(_, event)| *event)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Keeps the numbers that were enqueued.
    #[derive(Default)]
    struct Driver {
        numbers: RefCell<Vec<u64>>,
        refuses: bool,
    }

    impl Driver {
        fn enqueue(&self) -> impl Fn(u64, &mut CheckpointEvents) -> bool + '_ {
            |number, _| {
                self.numbers.borrow_mut().push(number);
                !self.refuses
            }
        }
    }

    fn submitted(number: u64) -> impl Fn() -> u64 {
        move || number
    }

    #[test]
    fn one_checkpoint_covers_everything_submitted() {
        let (reports, driver) = (Reports::default(), Driver::default());
        reports.want(2, submitted(5), driver.enqueue());
        reports.want(5, submitted(6), driver.enqueue());
        reports.want(6, submitted(6), driver.enqueue());
        assert_eq!(*driver.numbers.borrow(), [5, 6]);
        assert!(reports.covers(6) && !reports.covers(7));
        assert_eq!(reports.enqueued(), 6);
    }

    #[test]
    fn wants_beyond_the_limit_share_the_next_checkpoint() {
        let (reports, driver) = (Reports::default(), Driver::default());
        for number in 1..=10 {
            reports.want(number, submitted(number), driver.enqueue());
        }
        assert_eq!(*driver.numbers.borrow(), [1, 2, 3, 4]);
        reports.end(1);
        reports.enqueue_due(submitted(10), driver.enqueue());
        reports.end(1);
        reports.enqueue_due(submitted(12), driver.enqueue());
        assert_eq!(*driver.numbers.borrow(), [1, 2, 3, 4, 10]);
    }

    #[test]
    fn refused_checkpoint_is_covered_and_renewed_later() {
        let (reports, driver) = (Reports::default(), Driver { refuses: true, ..Driver::default() });
        reports.want(1, submitted(1), driver.enqueue());
        assert!(reports.covers(1));
        assert_eq!(reports.enqueued(), 0);
        let driver = Driver::default();
        reports.renew(submitted(1), driver.enqueue());
        reports.renew(submitted(1), driver.enqueue());
        assert_eq!(*driver.numbers.borrow(), [1]);
        assert_eq!(reports.enqueued(), 1);
    }
}
