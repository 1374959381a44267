//! The inbox of the completion thread: the reports that callers wait for.
//!
//! # Rules
//! - Callers put entries into the [`ReportInbox`]. The thread alone takes them out and owns them from then on.
//! - An entry is put there *after* its checkpoint was enqueued.
//! - The lock is not held across a call of the driver or of the client.

use std::{sync::Arc, time::Duration};

use cuda_core::internals::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
};

use crate::{driver::api::EventHandle, streams::DriverStream};

/// Shows that a stream has passed the submissions that a report covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checkpoint {
    /// An event, which the thread queries.
    Event(EventHandle),
    /// A host function, which stores the number and wakes the thread.
    HostFunction,
}

/// A report that a caller waits for.
pub(crate) struct Entry {
    /// Held, so that its status can be read also after the stream was retired.
    pub(crate) stream: Arc<DriverStream>,
    /// The submission that the report has to cover.
    pub(crate) number: u64,
    /// The way in which the thread learns that the stream has passed the submission. With none, it queries the stream
    /// from time to time.
    pub(super) checkpoint: Option<Checkpoint>,
}

/// The state that the thread shares with callers.
#[derive(Default)]
pub(crate) struct ReportInbox {
    state: Mutex<State>,
    wake: Condvar,
    /// Whether an entry was added or the inbox was closed. Readable without the lock.
    changed: AtomicBool,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    /// A signal that came while the thread was awake.
    signaled: bool,
    sleeping: bool,
    /// The backend was dropped.
    closed: bool,
}

impl ReportInbox {
    /// Adds an entry, and wakes the thread. Its checkpoint, if it has one, was enqueued before.
    pub(super) fn put(&self, entry: Entry) {
        self.change(|state| state.entries.push(entry));
    }

    /// Ends the thread once every entry is reported.
    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Wakes the thread, which then checks its entries.
    pub(super) fn wake(&self) {
        self.change(|_| {});
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        state.signaled = true;
        self.changed.store(true, Ordering::Release);
        if state.sleeping {
            self.wake.notify_one();
        }
    }

    /// Moves new entries to `watched`. Returns whether there were any, and whether the backend was dropped.
    pub(super) fn take(&self, watched: &mut Vec<Entry>) -> (bool, bool) {
        if !self.changed.load(Ordering::Acquire) {
            return (false, false);
        }
        let mut state = self.state.lock();
        let added = !state.entries.is_empty();
        watched.append(&mut state.entries);
        // While the inbox is closed, every later call reports that again.
        self.changed.store(state.closed, Ordering::Release);
        (added, state.closed)
    }

    /// Sleeps until a signal or for `timeout`. Returns at once if a signal came since the last call.
    pub(super) fn wait(&self, timeout: Option<Duration>) {
        let mut state = self.state.lock();
        state.sleeping = true;
        if !state.signaled {
            match timeout {
                Some(timeout) => _ = self.wake.wait_for(&mut state, timeout),
                None => self.wake.wait(&mut state),
            }
        }
        (state.signaled, state.sleeping) = (false, false);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry { stream: Arc::new(DriverStream::without_driver(1)), number: 1, checkpoint: None }
    }

    #[test]
    fn entry_is_taken_once_and_closing_is_reported_every_time() {
        let (inbox, mut watched) = (ReportInbox::default(), Vec::new());
        assert_eq!(inbox.take(&mut watched), (false, false));
        inbox.put(entry());
        inbox.close();
        assert_eq!(inbox.take(&mut watched), (true, true));
        assert_eq!(watched.len(), 1);
        assert_eq!(inbox.take(&mut watched), (false, true));
    }

    #[test]
    fn signal_before_the_sleep_is_not_lost() {
        let inbox = ReportInbox::default();
        inbox.wake();
        inbox.wait(None);
        inbox.wait(Some(Duration::from_millis(1)));
    }

    #[test]
    fn sleeping_thread_is_woken_by_an_entry() {
        let inbox = Arc::new(ReportInbox::default());
        let thread = {
            let inbox = Arc::clone(&inbox);
            std::thread::spawn(move || inbox.wait(None))
        };
        while !inbox.state.lock().sleeping {
            std::thread::yield_now();
        }
        inbox.put(entry());
        thread.join().unwrap();
    }
}
