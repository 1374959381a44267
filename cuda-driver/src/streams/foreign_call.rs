//! Foreign calls: foreign code enqueues on a stream, and may capture it meanwhile.
//!
//! # Rules
//! - A capture lasts at most as long as the foreign call that begins it. The caller of the foreign code promises that.
//! - During a foreign call this library neither queries the stream, which would end a capture, nor enqueues on it, which
//!   the capture would include. The client holds the order lock during the foreign call, so it submits nothing else.
//!   Frees are held here. Queries and frees take the lock of [`ForeignState`] for their driver calls.
//! - Before the call, the stream's event is recorded behind everything that was submitted. So other streams, blocked
//!   threads and the completion thread have an event to rely on, and need not record one.

use cuda_core::internals::sync::{
    MutexGuard,
    atomic::{Ordering, fence},
};

use super::{CheckpointEvents, DriverStream, foreign_state::ForeignState};
use crate::windows::HeldFree;

impl DriverStream {
    /// Keeps a foreign call from beginning while the guard lives. The caller may enqueue a free meanwhile.
    pub(crate) fn foreign_state(&self) -> MutexGuard<'_, ForeignState> {
        self.foreign_state.lock()
    }

    /// Makes a driver call during which no foreign call begins. Returns nothing if one runs.
    #[inline]
    pub(super) fn unless_foreign<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let state = self.foreign_state.lock();
        (!state.active).then(call)
    }

    /// Whether foreign code may be enqueuing on the stream now.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire)
    }

    /// A foreign call begins. The caller has recorded the stream's event behind everything that was submitted.
    /// `enqueue` makes an entry for a report that a thread wanted in this moment.
    pub(crate) fn begin_foreign(&self, enqueue: impl Fn(u64, &mut CheckpointEvents) -> bool) {
        self.set_foreign(true);
        self.reports.enqueue_due(|| self.submitted(), enqueue);
    }

    /// The foreign call has ended. `renew` enqueues the checkpoint that was held back, if there is one, and `enqueue`
    /// those that are due. Returns the frees that were held.
    #[must_use = "the memory is freed by the caller"]
    pub(crate) fn end_foreign(
        &self,
        renew: impl Fn(u64, &mut CheckpointEvents) -> bool,
        enqueue: impl Fn(u64, &mut CheckpointEvents) -> bool,
    ) -> Vec<HeldFree> {
        let held = self.set_foreign(false);
        self.reports.renew(|| self.submitted(), renew);
        self.reports.enqueue_due(|| self.submitted(), enqueue);
        held
    }

    fn set_foreign(&self, active: bool) -> Vec<HeldFree> {
        let held = self.reports.without_checkpoints(|| {
            let mut state = self.foreign_state.lock();
            state.active = active;
            self.foreign.store(active, Ordering::Release);
            std::mem::take(&mut state.held)
        });
        // Orders the unlock before the next check of the reports that are wanted.
        fence(Ordering::SeqCst);
        held
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use cuda_core::protocol::AllocId;

    #[test]
    fn no_checkpoint_is_enqueued_during_a_foreign_call() {
        let stream = DriverStream::without_driver(7);
        let checkpoints = RefCell::new(Vec::new());
        let enqueue = |number, _: &mut CheckpointEvents| {
            let takes = !stream.is_foreign();
            checkpoints.borrow_mut().push((number, takes));
            takes
        };
        stream.set_submitted(1);
        stream.begin_foreign(enqueue);
        stream.reports.want(1, || stream.submitted(), enqueue);
        assert!(stream.reports.covers(1) && stream.reports.enqueued() < 1);
        stream.set_submitted(2);
        drop(stream.end_foreign(enqueue, enqueue));
        assert!(stream.reports.covers(2) && stream.reports.enqueued() == 2);
        assert_eq!(*checkpoints.borrow(), [(1, false), (2, true)]);
    }

    #[test]
    fn frees_and_queries_are_held_back_during_a_foreign_call() {
        let stream = DriverStream::without_driver(7);
        let free = |id| HeldFree { id: AllocId(id), after: Vec::new() };
        assert!(stream.foreign_state().hold(free(1)).is_some());
        assert_eq!(stream.unless_foreign(|| 1), Some(1));
        stream.begin_foreign(|_, _| true);
        assert!(stream.foreign_state().hold(free(2)).is_none());
        assert_eq!(stream.unless_foreign(|| 1), None);
        let held = stream.end_foreign(|_, _| true, |_, _| true);
        assert_eq!(held.iter().map(|free| free.id).collect::<Vec<_>>(), [AllocId(2)]);
        assert_eq!(stream.unless_foreign(|| 1), Some(1));
    }
}
