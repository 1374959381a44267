//! Retention: resources that submissions use and that nothing else keeps alive, held until their completion.

use std::{any::Any, collections::VecDeque, sync::Arc};

use crate::{
    protocol::{StreamId, Ticket},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The number of resources that a stream retains before it requests a report of its progress.
pub const MAX_RETAINED: usize = 64;

/// The number of bytes that a stream retains before it requests a report of its progress.
pub const MAX_RETAINED_BYTES: usize = 64 << 20;

/// A resource that submissions use, such as a block of host memory or memory of another device.
pub trait Retain: Any + Send + Sync {
    /// Returns the bytes of host memory that the resource holds.
    fn host_bytes(&self) -> usize {
        0
    }
}

/// The end of a submission's need for a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until the backend has taken the bytes: the source of an upload.
    Accepted,
    /// Until the submission has run.
    Complete,
}

/// The resources that a stream retains.
#[derive(Default)]
pub(crate) struct Retention {
    held: Mutex<Held>,
    /// The number of resources. Readable without the lock. Stored under the lock.
    count: AtomicUsize,
    /// The host memory of the resources, in bytes. As `count`.
    bytes: AtomicUsize,
}

#[derive(Default)]
struct Held {
    bytes: usize,
    /// The resources, each with the submission that uses it; the oldest first.
    queue: VecDeque<Entry>,
    /// The number of resources that were retained since the last request for a report, or since the queue was last
    /// empty.
    unasked: usize,
    unasked_bytes: usize,
}

struct Entry {
    last_use: u64,
    until: Until,
    /// The host memory that the resource stated when it was retained.
    bytes: usize,
    resource: Arc<dyn Retain>,
}

impl Held {
    #[cold]
    fn insert(&mut self, entry: Entry) {
        let place = self.queue.partition_point(|other| other.last_use <= entry.last_use);
        self.queue.insert(place, entry);
    }

    /// Subtracts the host memory of entries that were removed from the queue.
    fn subtract(&mut self, released: &[Entry]) {
        self.bytes -= released.iter().map(|entry| entry.bytes).sum::<usize>();
    }
}

impl Retention {
    /// Retains a resource for a submission, which may be an earlier one. Returns whether it is time to ask for a report
    /// of the stream's progress.
    pub(crate) fn keep(&self, last_use: u64, until: Until, resource: Arc<dyn Retain>) -> bool {
        let mut held = self.held.lock();
        let bytes = resource.host_bytes();
        held.bytes += bytes;
        held.unasked += 1;
        held.unasked_bytes += bytes;
        let entry = Entry { last_use, until, bytes, resource };
        match held.queue.back() {
            Some(last) if last.last_use > last_use => held.insert(entry),
            _ => held.queue.push_back(entry),
        }
        self.show(&held);
        let ask = held.unasked >= MAX_RETAINED || held.unasked_bytes >= MAX_RETAINED_BYTES;
        if ask {
            (held.unasked, held.unasked_bytes) = (0, 0);
        }
        ask
    }

    /// Drops the resource of a submission that was refused.
    #[cold]
    pub(crate) fn forget(&self, number: u64) {
        let mut held = self.held.lock();
        let refused = match held.queue.back() {
            Some(newest) if newest.last_use == number => held.queue.pop_back(),
            _ => None,
        };
        held.subtract(refused.as_slice());
        self.show(&held);
        drop(held);
        drop(refused);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // `SeqCst`: see `Timeline::retain_until`.
        self.count.load(Ordering::SeqCst) == 0
    }

    /// The host memory that it holds, in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// The submission after whose completion at most `bytes` bytes of host memory are retained; 0 if no more are
    /// retained now.
    pub(crate) fn leaves_at_most(&self, bytes: usize) -> u64 {
        let held = self.held.lock();
        let mut left = held.bytes;
        let mut entries = held.queue.iter();
        let mut number = 0;
        while left > bytes
            && let Some(entry) = entries.next()
        {
            left -= entry.bytes;
            number = entry.last_use;
        }
        number
    }

    /// Makes the sums readable without the lock. Called after each change, with the lock held.
    fn show(&self, held: &Held) {
        self.count.store(held.queue.len(), Ordering::Release);
        self.bytes.store(held.bytes, Ordering::Release);
    }

    /// Releases every resource whose last use is submission `number` or an earlier one.
    #[inline]
    pub(crate) fn release(&self, number: u64) {
        while !self.is_empty()
            && let Some(resource) = self.take_oldest(number)
        {
            drop(resource);
        }
    }

    /// Takes out the oldest resource, if its last use is submission `number` or an earlier one. The caller drops it
    /// after the lock is released, because the drop may run other code.
    fn take_oldest(&self, number: u64) -> Option<Arc<dyn Retain>> {
        let mut held = self.held.lock();
        let oldest = match held.queue.front() {
            Some(oldest) if oldest.last_use <= number => held.queue.pop_front()?,
            _ => return None,
        };
        held.subtract(std::slice::from_ref(&oldest));
        // With nothing retained, no report is needed.
        if held.queue.is_empty() {
            (held.unasked, held.unasked_bytes) = (0, 0);
        }
        self.show(&held);
        Some(oldest.resource)
    }

    /// Releases every resource of [`Until::Accepted`] whose last use is submission `number` or an earlier one.
    #[inline]
    pub(crate) fn release_accepted(&self, number: u64) {
        if !self.is_empty() {
            let mut held = self.held.lock();
            let due = |entry: &Entry| entry.until == Until::Accepted && entry.last_use <= number;
            let (released, kept) = held.queue.drain(..).partition::<Vec<_>, _>(due);
            held.queue = kept.into();
            held.subtract(&released);
            self.show(&held);
            drop(held);
            drop(released);
        }
    }

    /// Takes everything out, with the tickets that it was retained for.
    pub(crate) fn take(&self, stream: StreamId) -> Vec<(Ticket, Box<dyn Any + Send + Sync>)> {
        let mut held = self.held.lock();
        let all = std::mem::take(&mut *held).queue;
        self.show(&held);
        drop(held);
        let boxed = |resource| Box::new(resource) as Box<dyn Any + Send + Sync>;
        let at = |number| Ticket { stream, number };
        all.into_iter().map(|entry| (at(entry.last_use), boxed(entry.resource))).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Resource;
    impl Retain for Resource {}

    #[test]
    fn resources_are_released_in_the_order_of_their_last_uses() {
        let (retention, all) = (Retention::default(), [(); 4].map(|()| Arc::new(Resource)));
        let retained = || all.each_ref().map(|resource| Arc::strong_count(resource) - 1);
        for at in [2, 0, 3, 1] {
            retention.keep(at as u64 + 1, Until::Complete, all[at].clone());
        }
        let expected = [[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]];
        for (number, expected) in expected.into_iter().enumerate() {
            retention.release(number as u64);
            assert_eq!(retained(), expected, "after {number}");
        }
    }

    #[test]
    fn report_is_due_when_many_resources_are_retained() {
        let retention = Retention::default();
        let mut keep = |number| retention.keep(number, Until::Complete, Arc::new(Resource));
        let due: Vec<_> = (1..=MAX_RETAINED as u64).map(&mut keep).collect();
        assert_eq!(due.iter().position(|due| *due), Some(MAX_RETAINED - 1));
        // Without any, the count begins again.
        retention.release(1000);
        assert!((1..MAX_RETAINED as u64).all(|number| !keep(number)));
        retention.release(1000);
        assert!((1..MAX_RETAINED as u64).all(|number| !keep(number)));
    }
}
