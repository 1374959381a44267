//! The live streams of a device, and delivery of the backend's notices to them.

use std::{
    sync::{Arc, OnceLock, Weak},
    thread::ThreadId,
};

use rustc_hash::FxHashMap;

use super::output::Output;
use crate::{
    order::timeline::Timeline,
    protocol::{Error, Notice, NoticeSink, StreamId, Ticket},
    sync::{Mutex, RwLock},
};

#[derive(Default)]
pub(crate) struct Streams {
    table: RwLock<FxHashMap<StreamId, Arc<Timeline>>>,
    /// The threads that are inside [`NoticeSink::notice`] now, and may be running wakers.
    delivering: Mutex<Vec<ThreadId>>,
    /// The latest fault that the device can be reset from.
    fault: Mutex<Option<Error>>,
    device: OnceLock<Weak<dyn AfterProgress>>,
    pub(crate) output: Output,
}

/// The part of a device that acts when a stream made progress.
pub(crate) trait AfterProgress: Send + Sync {
    /// Reclaims dropped resources that no work uses any more, and wakes the tasks that wait for memory.
    fn after_progress(&self);
}

impl Streams {
    /// Sets the device that is called after progress.
    pub(crate) fn attach(&self, device: Weak<dyn AfterProgress>) {
        let _ = self.device.set(device);
    }

    pub(crate) fn insert(&self, timeline: Arc<Timeline>) {
        self.table.write().insert(timeline.id, timeline);
    }

    /// Removes a stream if only the table holds it. Otherwise another thread may be about to order work after it.
    pub(crate) fn remove_unused(&self, id: StreamId) -> bool {
        let mut table = self.table.write();
        // No thread can clone the table's `Arc` meanwhile. A thread may still upgrade a `Weak` of `inferred_completion`. It
        // only advances the progress, and orders no work after this stream.
        let unused = table.get(&id).is_some_and(|timeline| Arc::strong_count(timeline) == 1);
        let removed = if unused { table.remove(&id) } else { None };
        drop(table);
        removed.is_some()
    }

    /// The stream with this id. A stream that is gone has run everything it ever had.
    pub(crate) fn find(&self, id: StreamId) -> Option<Arc<Timeline>> {
        self.table.read().get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Timeline>> {
        self.table.read().values().cloned().collect()
    }

    /// The ticket of each stream's last submission. Its number is 0 if there is none.
    pub(crate) fn last_tickets(&self) -> Vec<Ticket> {
        let last = |it: &Arc<Timeline>| Ticket { stream: it.id, number: it.published() };
        self.table.read().values().map(last).collect()
    }

    /// Ends every stream: submissions that are not complete fail with `error`. Called when the device is lost.
    #[cold]
    pub(crate) fn fail_all(&self, error: &Error) {
        let woken: Vec<_> =
            self.all().iter().map(|it| it.progress.fail_all(error.clone())).collect();
        drop(woken);
    }

    pub(crate) fn is_complete(&self, ticket: Ticket) -> bool {
        self.find(ticket.stream).is_none_or(|it| it.progress.completed() >= ticket.number)
    }

    /// Whether the calling thread is delivering notices, so that waiting for one would never end.
    pub(crate) fn delivers_here(&self) -> bool {
        self.delivering.lock().contains(&std::thread::current().id())
    }

    /// The latest fault.
    pub(crate) fn last_fault(&self) -> Option<Error> {
        self.fault.lock().clone()
    }

    fn advance(&self, stream: StreamId, accepted: u64, complete: u64) {
        let Some(timeline) = self.find(stream) else { return };
        timeline.accept(accepted);
        timeline.advance(complete);
        drop(timeline);
        if let Some(device) = self.device.get().and_then(Weak::upgrade) {
            device.after_progress();
        }
    }
}

// SAFETY: this sink forwards no notices.
unsafe impl NoticeSink for Streams {
    unsafe fn notice(&self, notice: Notice) {
        match notice {
            Notice::Failed { ticket, error } => {
                if let Some(timeline) = self.find(ticket.stream) {
                    timeline.progress.fail(ticket.number, error);
                }
            }
            Notice::Progress { stream, accepted, complete } => {
                let _delivering = Delivering::new(self);
                self.advance(stream, accepted, complete);
            }
            Notice::Faulted { error } => {
                let previous = self.fault.lock().replace(error);
                drop(previous);
            }
            Notice::Output { text } => self.output.print(&text),
            Notice::Lost { error } => {
                let _delivering = Delivering::new(self);
                self.fail_all(&error);
            }
        }
    }
}

/// Marks the calling thread as one that delivers notices, also while a waker unwinds.
struct Delivering<'a>(&'a Streams);

impl<'a> Delivering<'a> {
    fn new(streams: &'a Streams) -> Self {
        streams.delivering.lock().push(std::thread::current().id());
        Self(streams)
    }
}

impl Drop for Delivering<'_> {
    fn drop(&mut self) {
        let this = std::thread::current().id();
        let mut delivering = self.0.delivering.lock();
        if let Some(at) = delivering.iter().rposition(|thread| *thread == this) {
            delivering.swap_remove(at);
        }
    }
}
