//! The completion thread: watches streams and delivers notices.
//!
//! # Rules
//! - Every entry ends in a [`Notice::Progress`] that covers its number, or in [`Notice::Lost`].
//! - Notices are delivered with no lock held.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use cuda_core::{
    internals::sync::{self, discard_panic, spin_loop},
    protocol::{Error, Notice, NoticeSink, StreamId},
};
use smallvec::SmallVec;

use super::{
    checkpoint::{Entry, ReportInbox, WatchedDevice, enqueue_checkpoint, renew_checkpoint},
    waiting::{Completion, Step, next_step},
};
use crate::streams::DriverStream;

/// The thread's state.
struct Watcher<'a, D> {
    device: &'a D,
    inbox: &'a ReportInbox,
    notices: &'a dyn NoticeSink,
    watched: Vec<Entry>,
    /// The last time at which something was reported or an entry was added.
    active: Instant,
    /// The last time at which something was reported, the streams were queried, or an entry was added to an empty
    /// `watched`.
    checked: Instant,
    /// The last time at which the streams were queried, or an entry was added to an empty `watched`.
    queried: Instant,
}

/// Watches until the backend is dropped and every entry is reported.
pub(crate) fn watch(
    device: &impl WatchedDevice,
    completion: Completion,
    inbox: &ReportInbox,
    notices: &dyn NoticeSink,
) {
    let now = sync::now();
    let (watched, active, checked, queried) = (Vec::new(), now, now, now);
    let mut watcher = Watcher { device, inbox, notices, watched, active, checked, queried };
    loop {
        let was_idle = watcher.watched.is_empty();
        let (added, closed) = inbox.take(&mut watcher.watched);
        if closed && watcher.watched.is_empty() {
            return;
        }
        let mut now = sync::now();
        if added {
            watcher.active = now;
            if was_idle {
                (watcher.checked, watcher.queried) = (now, now);
            }
        }
        let reported = watcher.report_due();
        if reported {
            now = sync::now();
            (watcher.active, watcher.checked) = (now, now);
        }
        let (since_active, since_check) = watcher.times(now);
        match next_step(completion, watcher.watched.is_empty(), since_active, since_check) {
            Step::Query => {
                watcher.query_all();
                (watcher.checked, watcher.queried) = (sync::now(), sync::now());
            }
            // Check the inbox again before sleeping: it may be closed, and an earlier wait may have taken that signal.
            _ if reported => {}
            Step::Spin => spin_loop(),
            Step::Sleep(time) => inbox.wait(Some(time)),
            Step::Park => inbox.wait(None),
        }
    }
}

impl<D: WatchedDevice> Watcher<'_, D> {
    /// The time since the last report or new entry, and since the streams were last checked. An entry without a
    /// checkpoint depends on the queries alone, however often other streams report.
    fn times(&self, now: Instant) -> (Duration, Duration) {
        let all_have_checkpoints = self.watched.iter().all(|entry| entry.checkpoint.is_some());
        let checked = if all_have_checkpoints { self.checked } else { self.queried };
        (now - self.active, now - checked)
    }

    /// Reports the entries that their streams have passed, or the loss of the device. Returns whether there was
    /// anything to report.
    fn report_due(&mut self) -> bool {
        if let Some(error) = self.device.lost() {
            let any = !self.watched.is_empty();
            if any {
                self.report_lost(error);
            }
            return any;
        }
        let (mut any, mut index) = (false, 0);
        let mut behind = SmallVec::<[StreamId; 16]>::new();
        while let Some(entry) = self.watched.get(index) {
            // A stream passes its checkpoints in order, so only its oldest one is checked.
            if behind.contains(&entry.stream.id) {
                index += 1;
                continue;
            }
            match self.device.passed(entry) {
                Ok(Some(number)) => {
                    let stream = entry.stream.clone();
                    // Removes the entry and all others that the number covers.
                    self.report(&stream, number);
                    (any, index) = (true, 0);
                }
                Ok(None) => {
                    if entry.checkpoint.is_some() {
                        behind.push(entry.stream.id);
                    }
                    index += 1;
                }
                Err(error) => {
                    self.report_lost(error);
                    return true;
                }
            }
        }
        any
    }

    /// Queries every watched stream once. Finds faults, and the completion of entries without a checkpoint.
    fn query_all(&mut self) {
        let mut streams: Vec<_> = self.watched.iter().map(|entry| entry.stream.clone()).collect();
        streams.sort_by_key(|stream| stream.id);
        streams.dedup_by_key(|stream| stream.id);
        for stream in streams {
            match self.device.status(&stream) {
                Ok(None) => self.renew(&stream),
                Ok(Some(number)) => self.report(&stream, number),
                Err(error) => return self.report_lost(error),
            }
        }
    }

    /// Enqueues the checkpoint that the driver refused or that was held back, if there is one.
    fn renew(&self, stream: &Arc<DriverStream>) {
        let renew = renew_checkpoint(self.device, self.inbox, stream);
        stream.reports.renew(|| stream.submitted(), renew);
        self.enqueue_due(stream);
    }

    /// Enqueues the checkpoints that callers want.
    fn enqueue_due(&self, stream: &Arc<DriverStream>) {
        let enqueue = enqueue_checkpoint(self.device, self.inbox, stream);
        stream.reports.enqueue_due(|| stream.submitted(), enqueue);
    }

    /// Delivers the progress of a stream. Ends the entries that it covers, and asks for the next checkpoint.
    fn report(&mut self, stream: &Arc<DriverStream>, complete: u64) {
        stream.passed.raise(complete);
        let ends = |entry: &mut Entry| entry.stream.id == stream.id && entry.number <= complete;
        let ended = self.watched.extract_if(.., ends).count();
        stream.reports.end(ended as u32);
        if stream.raise_reported(complete) {
            self.deliver(Notice::Progress { stream: stream.id, accepted: complete, complete });
        }
        self.enqueue_due(stream);
    }

    /// Delivers `Notice::Lost` and ends every entry.
    fn report_lost(&mut self, error: Error) {
        for entry in self.watched.drain(..) {
            entry.stream.reports.end(1);
        }
        self.deliver(Notice::Lost { error });
    }

    fn deliver(&self, notice: Notice) {
        // A notice may run wakers, which are a user's code. A panic there must not prevent the other notices.
        // SAFETY: the stream has passed the number, as rule 9 requires, or the device is lost.
        let deliver = || unsafe { self.notices.notice(notice) };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(deliver)) {
            discard_panic(payload);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::{completion::checkpoint::Checkpoint, streams::CheckpointEvents};

    fn stream(id: u64) -> Arc<DriverStream> {
        Arc::new(DriverStream::without_driver(id))
    }

    fn entry(stream: &Arc<DriverStream>, number: u64, has_checkpoint: bool) -> Entry {
        let checkpoint = has_checkpoint.then_some(Checkpoint::HostFunction);
        Entry { stream: stream.clone(), number, checkpoint }
    }

    /// A device whose streams are idle up to a number, or cannot be queried, and which may refuse checkpoints.
    #[derive(Default)]
    struct Fake {
        idle: Vec<(StreamId, u64)>,
        lost: RefCell<Option<Error>>,
        queried: RefCell<Vec<StreamId>>,
        refuses: Cell<bool>,
    }

    impl WatchedDevice for Fake {
        fn lost(&self) -> Option<Error> {
            self.lost.borrow().clone()
        }

        fn status(&self, stream: &DriverStream) -> Result<Option<u64>, Error> {
            self.queried.borrow_mut().push(stream.id);
            let idle = self.idle.iter().find(|(id, _)| *id == stream.id);
            self.lost().map_or(Ok(idle.map(|(_, number)| *number)), Err)
        }

        fn passed(&self, entry: &Entry) -> Result<Option<u64>, Error> {
            let completed = entry.stream.completed();
            Ok((entry.checkpoint.is_some() && completed >= entry.number).then_some(completed))
        }

        fn checkpoint(
            &self,
            _: &DriverStream,
            _: u64,
            _: &mut CheckpointEvents,
        ) -> Option<Checkpoint> {
            (!self.refuses.get()).then_some(Checkpoint::HostFunction)
        }
    }

    #[derive(Default)]
    struct Notices(parking_lot::Mutex<Vec<Notice>>);

    // SAFETY: keeps notices and forwards none.
    unsafe impl NoticeSink for Notices {
        unsafe fn notice(&self, notice: Notice) {
            self.0.lock().push(notice);
        }
    }

    fn watcher<'a>(
        device: &'a Fake,
        inbox: &'a ReportInbox,
        notices: &'a Notices,
    ) -> Watcher<'a, Fake> {
        let now = sync::now();
        let (active, checked, queried) = (now, now, now);
        Watcher { device, inbox, notices, watched: Vec::new(), active, checked, queried }
    }

    fn progress(stream: u64, complete: u64) -> Notice {
        Notice::Progress { stream: StreamId(stream), accepted: complete, complete }
    }

    #[test]
    fn one_notice_reports_all_due_entries_of_a_stream() {
        let (device, inbox, notices) = Default::default();
        let (a, b) = (stream(1), stream(2));
        let mut watcher = watcher(&device, &inbox, &notices);
        watcher.watched =
            vec![entry(&a, 1, true), entry(&b, 5, true), entry(&a, 3, true), entry(&a, 4, true)];
        assert!(!watcher.report_due());
        a.passed.raise(3);
        assert!(watcher.report_due());
        assert_eq!(*notices.0.lock(), [progress(1, 3)]);
        assert_eq!(watcher.watched.len(), 2);
        b.passed.raise(9);
        a.passed.raise(4);
        assert!(watcher.report_due());
        assert_eq!(notices.0.lock()[1..], [progress(2, 9), progress(1, 4)]);
        assert!(watcher.watched.is_empty());
    }

    #[test]
    fn checkpoint_ends_an_earlier_entry_without_one() {
        let (device, inbox, notices) = Default::default();
        let stream = stream(1);
        let mut watcher = watcher(&device, &inbox, &notices);
        watcher.watched = vec![entry(&stream, 1, false), entry(&stream, 2, true)];
        stream.passed.raise(1);
        assert!(!watcher.report_due());
        stream.passed.raise(2);
        assert!(watcher.report_due());
        assert_eq!(*notices.0.lock(), [progress(1, 2)]);
        assert!(watcher.watched.is_empty());
    }

    #[test]
    fn query_completes_entry_without_checkpoint_beside_unqueryable_stream() {
        let device = Fake { idle: vec![(StreamId(2), 7)], ..Fake::default() };
        let (inbox, notices) = Default::default();
        let (captured, idle) = (stream(1), stream(2));
        let mut watcher = watcher(&device, &inbox, &notices);
        watcher.watched =
            vec![entry(&captured, 1, true), entry(&captured, 2, true), entry(&idle, 6, false)];
        watcher.query_all();
        assert_eq!(*device.queried.borrow(), [StreamId(1), StreamId(2)]);
        assert_eq!(*notices.0.lock(), [progress(2, 7)]);
        assert_eq!(watcher.watched.len(), 2);
    }

    /// A driver refuses four checkpoints of a stream that is never idle. When it takes checkpoints again, the stream is
    /// reported.
    #[test]
    fn refused_checkpoints_are_renewed_on_a_busy_stream() {
        let (device, inbox, notices) = <(Fake, ReportInbox, Notices)>::default();
        let stream = stream(1);
        let mut watcher = watcher(&device, &inbox, &notices);
        device.refuses.set(true);
        for number in 1..=5 {
            stream.set_submitted(number);
            let enqueue = enqueue_checkpoint(&device, &inbox, &stream);
            stream.reports.want(number, || stream.submitted(), enqueue);
        }
        inbox.take(&mut watcher.watched);
        watcher.query_all();
        inbox.take(&mut watcher.watched);
        assert_eq!(watcher.watched.len(), 4);
        device.refuses.set(false);
        watcher.query_all();
        inbox.take(&mut watcher.watched);
        assert_eq!(watcher.watched.len(), 5);
        stream.passed.raise(5);
        assert!(watcher.report_due());
        assert_eq!(*notices.0.lock(), [progress(1, 5)]);
        assert!(watcher.watched.is_empty());
    }

    #[test]
    fn device_loss_ends_all_entries_and_is_reported_for_later_ones() {
        let (device, inbox, notices) = Default::default();
        let stream = stream(1);
        let lost = Notice::Lost { error: Error::AlreadyEnded };
        let mut watcher = watcher(&device, &inbox, &notices);
        watcher.watched = vec![entry(&stream, 1, true), entry(&stream, 2, false)];
        *device.lost.borrow_mut() = Some(Error::AlreadyEnded);
        assert!(watcher.report_due());
        assert!(!watcher.report_due());
        assert_eq!(notices.0.lock().len(), 1);
        watcher.watched = vec![entry(&stream, 3, true)];
        assert!(watcher.report_due());
        assert_eq!(*notices.0.lock(), [lost.clone(), lost]);
    }
}
