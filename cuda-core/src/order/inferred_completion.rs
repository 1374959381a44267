//! Completion inferred through cross-stream waits: if a submission came after a ticket of another stream and is
//! complete, that ticket is complete too. Without this, a joined stream would count as busy until its own report.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use super::timeline::Timeline;
use crate::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

/// The number of edges that a stream stores. A lost edge costs one unnecessary report.
const MAX_EDGES: usize = 64;

#[derive(Default)]
pub(crate) struct InferredCompletion {
    edges: Mutex<VecDeque<Edge>>,
    /// The number of edges, readable without the lock. Stored under the lock.
    count: AtomicUsize,
}

/// An edge: when the stream has completed its submission `own`, the other stream has completed submission `number`.
struct Edge {
    own: u64,
    /// Not held: a stream that is gone has run everything.
    other: Weak<Timeline>,
    number: u64,
}

impl InferredCompletion {
    /// Records that submission `own` comes after submission `number` of `other`.
    pub(crate) fn note(&self, own: u64, other: &Arc<Timeline>, number: u64) {
        let mut edges = self.edges.lock();
        if edges.len() >= MAX_EDGES {
            edges.pop_front();
        }
        edges.push_back(Edge { own, other: Arc::downgrade(other), number });
        self.count.store(edges.len(), Ordering::Release);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Takes the edges of submissions up to `own`. Adds to `known` the streams and numbers that are complete because of
    /// them.
    pub(super) fn take_up_to(&self, own: u64, known: &mut Vec<(Arc<Timeline>, u64)>) {
        if self.is_empty() {
            return;
        }
        let mut edges = self.edges.lock();
        let due = edges.partition_point(|edge| edge.own <= own);
        for edge in edges.drain(..due) {
            known.extend(edge.other.upgrade().map(|other| (other, edge.number)));
        }
        self.count.store(edges.len(), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::protocol::StreamId;

    fn timeline(id: u64, published: u64) -> Arc<Timeline> {
        let timeline = Timeline::new(StreamId(id), 0, true);
        timeline.publish(published);
        timeline
    }

    #[test]
    fn completion_follows_edges_transitively() {
        let (a, b, c) = (timeline(1, 9), timeline(2, 9), timeline(3, 9));
        b.inferred.note(4, &c, 7);
        a.inferred.note(2, &b, 5);
        a.inferred.note(6, &c, 9);
        a.advance(1);
        assert_eq!((b.progress.completed(), c.progress.completed()), (0, 0));
        a.advance(3);
        assert_eq!((b.progress.completed(), c.progress.completed()), (5, 7));
        a.advance(6);
        assert_eq!((b.progress.completed(), c.progress.completed()), (5, 9));
    }

    #[test]
    fn edges_are_bounded_and_cycles_terminate() {
        let (a, b) = (timeline(1, 9999), timeline(2, 9999));
        for number in 1..1000 {
            a.inferred.note(number, &b, number);
            b.inferred.note(number, &a, number);
        }
        assert!(a.inferred.edges.lock().len() <= MAX_EDGES);
        a.advance(1000);
        assert_eq!(b.progress.completed(), 999);
        drop(b);
        a.advance(1001);
    }
}
