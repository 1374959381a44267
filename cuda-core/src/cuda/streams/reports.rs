//! Decides when a stream writes its word. The number of writes in flight is bounded for any number of waiting callers.
//!
//! # Rules
//! - `writing` is held while a write is enqueued, so values reach the driver in order. No thread waits for it inside a
//!   poll: a thread that finds it held has stored its number in `wanted`, and the holder looks there again after it
//!   released the lock.
//! - A written value is the stream's `accepted`, read before the write is enqueued. So every submission up to that
//!   value is ahead of the write in the stream.
//! - `covered` is the last value that the completion thread will report. `written` is the last value for which the
//!   driver took a write. They differ while the driver refuses writes. The completion thread then queries the stream.

use crate::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
    limit,
};

/// The number of word writes that a stream may have in flight. A write costs half as much as a launch. Further callers
/// share the next write, so they also wait for later submissions.
pub(crate) const MAX_WRITES: u32 = limit(4, 1) as u32;

#[derive(Default)]
pub(crate) struct Reports {
    writing: Mutex<()>,
    /// The largest number that a caller waits for.
    wanted: AtomicU64,
    /// Stored by the holder of `writing`.
    covered: AtomicU64,
    /// Stored by the holder of `writing`.
    written: AtomicU64,
    in_flight: AtomicU32,
}

impl Reports {
    /// Whether a report that covers this number was delivered or will be.
    #[inline]
    pub(crate) fn covers(&self, number: u64) -> bool {
        self.covered.load(Ordering::Acquire) >= number
    }

    /// The last value that the driver took a write for.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Requests a report that covers `number`, a submission that the driver took. The write is enqueued now, or when an
    /// earlier write has arrived. `accepted` reads the number of the last submission that the driver took. `enqueue`
    /// enqueues a write of its value and puts an entry into the inbox of the completion thread. It returns whether the
    /// driver took the write.
    pub(crate) fn want(
        &self,
        number: u64,
        accepted: impl Fn() -> u64,
        enqueue: impl Fn(u64) -> bool,
    ) {
        self.wanted.fetch_max(number, Ordering::SeqCst);
        self.ask(accepted, enqueue);
    }

    /// Counts writes that arrived as no longer in flight.
    pub(crate) fn arrived(&self, writes: u32) {
        self.in_flight.fetch_sub(writes, Ordering::SeqCst);
    }

    /// Enqueues a write if a caller waits for a number beyond `covered`, and fewer than [`MAX_WRITES`] are in flight.
    pub(crate) fn ask(&self, accepted: impl Fn() -> u64, enqueue: impl Fn(u64) -> bool) {
        while self.is_due() {
            let Some(writing) = self.writing.try_lock() else { return };
            if self.is_due() {
                self.write(&accepted, &enqueue);
            }
            drop(writing);
            // Orders the unlock before the next look: of two threads, one sees the other's number.
            fence(Ordering::SeqCst);
        }
    }

    /// Enqueues a write if the driver took none for the last report.
    pub(crate) fn renew(&self, accepted: impl Fn() -> u64, enqueue: impl Fn(u64) -> bool) {
        {
            let _writing = self.writing.lock();
            if self.covered.load(Ordering::Relaxed) > self.written.load(Ordering::Relaxed) {
                self.write(&accepted, &enqueue);
            }
        }
        fence(Ordering::SeqCst);
        self.ask(accepted, enqueue);
    }

    /// Runs `change` while no thread enqueues a write.
    pub(crate) fn without_writes<T>(&self, change: impl FnOnce() -> T) -> T {
        let _writing = self.writing.lock();
        change()
    }

    /// Enqueues a write. Called with `writing` held.
    fn write(&self, accepted: &impl Fn() -> u64, enqueue: &impl Fn(u64) -> bool) {
        let value = accepted();
        // Before the write, which may arrive at once.
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        if enqueue(value) {
            self.written.store(value, Ordering::Release);
        }
        self.covered.store(value, Ordering::Release);
    }

    fn is_due(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > self.covered.load(Ordering::Acquire)
            && self.in_flight.load(Ordering::SeqCst) < MAX_WRITES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Keeps the values that were written.
    #[derive(Default)]
    struct Driver {
        values: RefCell<Vec<u64>>,
        refuses: bool,
    }

    impl Driver {
        fn enqueue(&self) -> impl Fn(u64) -> bool + '_ {
            |value| {
                self.values.borrow_mut().push(value);
                !self.refuses
            }
        }
    }

    fn accepted(number: u64) -> impl Fn() -> u64 {
        move || number
    }

    #[test]
    fn one_write_covers_everything_accepted() {
        let (reports, driver) = (Reports::default(), Driver::default());
        reports.want(2, accepted(5), driver.enqueue());
        reports.want(5, accepted(6), driver.enqueue());
        reports.want(6, accepted(6), driver.enqueue());
        assert_eq!(*driver.values.borrow(), [5, 6]);
        assert!(reports.covers(6) && !reports.covers(7));
        assert_eq!(reports.written(), 6);
    }

    #[test]
    fn wants_beyond_the_limit_share_the_next_write() {
        let (reports, driver) = (Reports::default(), Driver::default());
        for number in 1..=10 {
            reports.want(number, accepted(number), driver.enqueue());
        }
        assert_eq!(*driver.values.borrow(), [1, 2, 3, 4]);
        reports.arrived(1);
        reports.ask(accepted(10), driver.enqueue());
        reports.arrived(1);
        reports.ask(accepted(12), driver.enqueue());
        assert_eq!(*driver.values.borrow(), [1, 2, 3, 4, 10]);
    }

    #[test]
    fn refused_write_is_covered_and_renewed_later() {
        let (reports, driver) = (Reports::default(), Driver { refuses: true, ..Driver::default() });
        reports.want(1, accepted(1), driver.enqueue());
        assert!(reports.covers(1));
        assert_eq!(reports.written(), 0);
        let driver = Driver::default();
        reports.renew(accepted(1), driver.enqueue());
        reports.renew(accepted(1), driver.enqueue());
        assert_eq!(*driver.values.borrow(), [1]);
        assert_eq!(reports.written(), 1);
    }
}
