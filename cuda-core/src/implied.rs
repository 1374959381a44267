//! What a stream's progress tells of others: it has waited for them.
//!
//! Whoever forks work over several streams waits for one of them. Without this the others would count as busy until
//! somebody asked, and what was used on them would be waited for again.
//!
//! It tells of the device alone. Host memory that another stream fills may be on its way yet, from a device far away:
//! a stream with copies in flight is left to be asked.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use crate::{
    stream_state::StreamState,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Waits that a stream remembers. Forgetting one costs a question that was not needed.
const MAX_EDGES: usize = 64;

#[derive(Default)]
pub(crate) struct Implied {
    edges: Mutex<VecDeque<Edge>>,
    /// How many there are, so that a look need not lock. Stored under the lock.
    count: AtomicUsize,
}

/// When the stream has run its submission `own`, the other one has run its submission `number`.
struct Edge {
    own: u64,
    /// Not held: a stream that is gone has run everything.
    other: Weak<StreamState>,
    number: u64,
}

impl Implied {
    /// A wait for everything up to `number` of `other` is in front of submission `own`.
    pub(crate) fn note(&self, own: u64, other: &Arc<StreamState>, number: u64) {
        let mut edges = self.edges.lock();
        if edges.len() >= MAX_EDGES {
            edges.pop_front();
        }
        edges.push_back(Edge { own, other: Arc::downgrade(other), number });
        self.count.store(edges.len(), Ordering::Release);
    }

    /// What is known now that the stream has run everything up to `own`.
    fn take_up_to(&self, own: u64, known: &mut Vec<(Arc<StreamState>, u64)>) {
        if self.count.load(Ordering::Acquire) == 0 {
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

impl StreamState {
    /// Everything up to `number` has run: wakes its waiters and gives back its host blocks, and so for the streams
    /// that it has waited for, and those that these have waited for.
    pub(crate) fn advance(&self, number: u64) {
        self.advance_alone(number);
        let mut known = Vec::new();
        self.implied.take_up_to(number, &mut known);
        while let Some((other, number)) = known.pop() {
            if other.progress.completed() < number && other.retained.is_empty() {
                other.advance_alone(number);
                other.implied.take_up_to(number, &mut known);
            }
        }
    }

    fn advance_alone(&self, number: u64) {
        let _woken = self.progress.advance(number);
        self.retained.release(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamId;

    fn stream(id: u64, published: u64) -> Arc<StreamState> {
        let state = StreamState::new(StreamId(id), 0);
        state.publish(published);
        state
    }

    #[test]
    fn what_was_waited_for_is_complete_and_what_that_waited_for() {
        let (a, b, c) = (stream(1, 9), stream(2, 9), stream(3, 9));
        b.implied.note(4, &c, 7);
        a.implied.note(2, &b, 5);
        a.implied.note(6, &c, 9);
        a.advance(1);
        assert_eq!((b.progress.completed(), c.progress.completed()), (0, 0));
        a.advance(3);
        assert_eq!((b.progress.completed(), c.progress.completed()), (5, 7));
        a.advance(6);
        assert_eq!((b.progress.completed(), c.progress.completed()), (5, 9));
    }

    #[test]
    fn it_is_bounded_and_rings_end() {
        let (a, b) = (stream(1, 9999), stream(2, 9999));
        for number in 1..1000 {
            a.implied.note(number, &b, number);
            b.implied.note(number, &a, number);
        }
        assert!(a.implied.edges.lock().len() <= MAX_EDGES);
        a.advance(1000);
        assert_eq!(b.progress.completed(), 999);
        drop(b);
        a.advance(1001);
    }
}
