//! The timeline of a stream: its numbers, its progress, its edges, and what it retains.
//!
//! # Which thread may touch which field
//! - `order` is held across the check, the backend call and the publication of one submission. No thread holds the
//!   `order` of two streams: an edge needs only the producer's `published`.
//! - `reserved` is stored under `order` before the backend takes a submission, so that a report may come at once;
//!   `published` is stored after it. Reports are clamped to `reserved`: a wrong report completes no submission that was
//!   never made.
//! - A submission claims its histories before it is published. Another stream can see such a claim only if it is a
//!   read: the handle of a writer has exclusive access, and replays of recordings take turns with all others (see
//!   `handle::stream::submit`). The other stream restores that claim instead of waiting for it.
//! - A thread that reports progress takes no `order`.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{
    progress::{HasProgress, Progress},
    retention::{Retain, Retention, Until},
};
use crate::{
    order::progress::InferredCompletion,
    protocol::{StreamId, Ticket},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering, fence},
    },
};

pub(crate) struct Timeline {
    pub(crate) id: StreamId,
    pub(crate) priority: i32,
    /// See [`Capabilities::ordered_visibility`](crate::protocol::Capabilities::ordered_visibility).
    ordered_visibility: bool,
    reserved: AtomicU64,
    published: AtomicU64,
    /// The last number for which [`take_due_report`](Self::take_due_report) returned true.
    asked: AtomicU64,
    /// The last number that a task will wait for and for which no report was requested yet; 0 if there is none. Stored
    /// under `order`.
    awaited: AtomicU64,
    pub(crate) progress: Progress,
    pub(crate) order: Mutex<Watermarks>,
    pub(crate) retention: Retention,
    pub(crate) inferred: InferredCompletion,
}

/// The number of other streams whose watermarks a stream stores. A lost watermark costs one unnecessary wait.
const MAX_WATERMARKS: usize = 64;

/// A report is requested after this many submissions, if no caller waits.
const REPORT_EVERY: u64 = 256;

/// For each other stream, the number up to which this one is ordered after it.
#[derive(Default)]
pub(crate) struct Watermarks(FxHashMap<StreamId, u64>);

impl Watermarks {
    pub(crate) fn covers(&self, ticket: Ticket) -> bool {
        self.0.get(&ticket.stream).is_some_and(|number| *number >= ticket.number)
    }

    pub(crate) fn raise(&mut self, ticket: Ticket) {
        if self.0.len() >= MAX_WATERMARKS {
            self.0.clear();
        }
        let number = self.0.entry(ticket.stream).or_default();
        *number = (*number).max(ticket.number);
    }
}

impl Timeline {
    pub(crate) fn new(id: StreamId, priority: i32, ordered_visibility: bool) -> Arc<Self> {
        Arc::new(Self {
            id,
            priority,
            ordered_visibility,
            reserved: AtomicU64::new(0),
            published: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            progress: Progress::default(),
            order: Mutex::default(),
            retention: Retention::default(),
            inferred: InferredCompletion::default(),
        })
    }

    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// The number of the next submission, which the backend may report from now on. Called with `order` held.
    #[inline]
    pub(crate) fn reserve(&self) -> Ticket {
        let number = self.published.load(Ordering::Relaxed) + 1;
        self.reserved.store(number, Ordering::Release);
        Ticket { stream: self.id, number }
    }

    /// Takes back the number of a refused submission, which the next one uses again. Called with `order` held.
    #[cold]
    pub(crate) fn give_back(&self, ticket: Ticket) {
        self.reserved.store(ticket.number - 1, Ordering::Release);
    }

    /// Records that the backend took the submission. Called with `order` held.
    #[inline]
    pub(crate) fn publish(&self, number: u64) {
        self.published.store(number, Ordering::Release);
    }

    /// Submissions that are not known to be complete.
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        self.published().saturating_sub(self.progress.completed())
    }

    /// Returns whether a report is due, which the caller then requests: [`REPORT_EVERY`] submissions were made since
    /// the last request or known completion. So a task that waits for credit gets it before everything is complete.
    /// Called with `order` held.
    #[inline]
    pub(crate) fn take_due_report(&self, number: u64) -> bool {
        let known = self.asked.load(Ordering::Relaxed).max(self.progress.completed());
        let due = number.saturating_sub(known) >= REPORT_EVERY;
        if due {
            self.asked.store(number, Ordering::Relaxed);
        }
        due
    }

    /// Records that a task will wait for this submission. Called with `order` held.
    #[inline]
    pub(crate) fn set_awaited(&self, number: u64) {
        self.awaited.store(number, Ordering::Relaxed);
    }

    /// Takes the submission that a task will wait for, if it is not known to be complete. The caller requests its
    /// report. Called with `order` held.
    #[inline]
    pub(crate) fn take_awaited(&self) -> Option<u64> {
        let number = self.awaited.load(Ordering::Relaxed);
        if number <= self.progress.completed() {
            return None;
        }
        self.awaited.store(0, Ordering::Relaxed);
        Some(number)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight() > 0 && self.progress.ended().is_none()
    }

    /// Records that everything up to `number` is complete and that the bytes of its downloads are visible. Wakes
    /// waiters and releases resources. Does the same for other streams, as far as their completion follows through
    /// edges.
    #[inline]
    pub(crate) fn advance(&self, number: u64) {
        let number = number.min(self.reserved.load(Ordering::Acquire).max(self.published()));
        self.retention.release(number);
        let has_waiters = self.progress.raise(number);
        // A resource may have come between the two lines above: see `retain_until`.
        self.retention.release(number);
        if has_waiters || !self.inferred.is_empty() {
            self.propagate_completion(number);
        }
    }

    /// Retains a resource until an earlier submission is complete. Returns whether many resources wait, so that a
    /// report is due. The submission may complete meanwhile. Then either the thread that raises the progress finds the
    /// resource, or this one finds the progress and releases it.
    pub(crate) fn retain_until(&self, number: u64, resource: Arc<dyn Retain>) -> bool {
        let is_report_due = self.retention.keep(number, Until::Complete, resource);
        // Orders the store of the resource before the load of the progress. The other thread stores the progress, and
        // then looks for resources, both `SeqCst`.
        fence(Ordering::SeqCst);
        self.release_complete(number);
        is_report_due
    }

    /// Releases the resources of submissions that are known to be complete. Returns whether submission `number` is.
    pub(crate) fn release_complete(&self, number: u64) -> bool {
        let completed = self.progress.completed();
        self.retention.release(completed);
        completed >= number
    }

    /// Releases the host memory that uploads up to `number` read: it may change again.
    pub(crate) fn accept(&self, number: u64) {
        self.retention.release_accepted(number.min(self.reserved.load(Ordering::Acquire)));
    }

    /// Advances the streams that submissions up to `number` came after, then wakes the tasks that wait for submissions
    /// up to `number`.
    #[cold]
    fn propagate_completion(&self, number: u64) {
        let woken = self.progress.take_up_to(number);
        self.advance_others(number);
        // The drop wakes the tasks.
        drop(woken);
    }

    fn advance_others(&self, number: u64) {
        let mut known = Vec::new();
        self.inferred.take_up_to(number, &mut known);
        while let Some((other, number)) = known.pop() {
            if other.progress.completed() >= number {
                continue;
            }
            if self.ordered_visibility {
                other.retention.release(number);
            } else if !other.retention.is_empty() {
                // The host bytes of the other stream's downloads may not be visible before its own report.
                continue;
            }
            let woken = other.progress.advance(number);
            if self.ordered_visibility {
                // As in `advance`.
                other.retention.release(number);
            }
            other.inferred.take_up_to(number, &mut known);
            // The drop wakes the tasks.
            drop(woken);
        }
    }
}

impl HasProgress for Timeline {
    fn progress(&self) -> &Progress {
        &self.progress
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn report_is_clamped_to_reserved_submissions() {
        let timeline = Timeline::new(StreamId(1), 0, true);
        let ticket = timeline.reserve();
        timeline.publish(ticket.number);
        let refused = timeline.reserve();
        timeline.give_back(refused);
        timeline.advance(u64::MAX);
        assert_eq!(timeline.progress.completed(), 1);
        let next = timeline.reserve();
        assert_eq!(next, refused);
        timeline.advance(u64::MAX);
        assert_eq!(timeline.progress.completed(), 2);
    }
}
