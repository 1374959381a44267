//! The live streams of a device, and delivery of the backend's notices: progress, failures, and the text that kernels
//! print. Streams that were lent and came back are lent again.

use std::{
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread::ThreadId,
};

use rustc_hash::FxHashMap;

use crate::{
    order::timeline::Timeline,
    protocol::{Error, Misuse, Notice, NoticeSink, Result, StreamId, Ticket},
    sync::{Mutex, RwLock, discard_panic},
};

#[derive(Default)]
pub(crate) struct Streams {
    table: RwLock<FxHashMap<StreamId, Arc<Timeline>>>,
    /// The threads that are inside [`NoticeSink::notice`] now, and may be running wakers.
    delivering: Mutex<Vec<ThreadId>>,
    /// The latest fault that the device can be reset from.
    fault: Mutex<Option<Error>>,
    device: OnceLock<Weak<dyn AfterProgress>>,
    /// [`Capabilities::only_thread`](crate::protocol::Capabilities::only_thread).
    only_thread: OnceLock<ThreadId>,
    pub(crate) output: Output,
}

/// The part of a device that acts when a stream made progress.
pub(crate) trait AfterProgress: Send + Sync {
    /// Reclaims dropped resources that no work uses any more, and wakes the tasks that wait for memory.
    fn after_progress(&self);
}

impl Streams {
    /// Sets the device that is called after progress, and the thread that alone delivers notices and replies.
    pub(crate) fn attach(&self, device: Weak<dyn AfterProgress>, only_thread: Option<ThreadId>) {
        let _ = self.device.set(device);
        if let Some(thread) = only_thread {
            let _ = self.only_thread.set(thread);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.table.read().len()
    }

    pub(crate) fn insert(&self, timeline: Arc<Timeline>) {
        self.table.write().insert(timeline.id, timeline);
    }

    /// Removes a stream if only the table holds it. Otherwise another thread may be about to order work after it.
    pub(crate) fn remove_unused(&self, id: StreamId) -> bool {
        let mut table = self.table.write();
        // No thread can clone the table's `Arc` meanwhile. A thread may still upgrade a `Weak` of `progress`. It
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

    /// The tickets of the last submissions that are not complete, one for each stream.
    pub(crate) fn last_tickets(&self) -> Vec<Ticket> {
        let last =
            |timeline: &Arc<Timeline>| Ticket { stream: timeline.id, number: timeline.published() };
        self.table.read().values().filter(|timeline| timeline.in_flight() > 0).map(last).collect()
    }

    /// Ends every stream: submissions that are not complete fail with `error`. Called when the device is lost.
    #[cold]
    pub(crate) fn fail_all(&self, error: &Error) {
        let woken: Vec<_> =
            self.all().iter().map(|timeline| timeline.progress.fail_all(error.clone())).collect();
        drop(woken);
    }

    pub(crate) fn is_complete(&self, ticket: Ticket) -> bool {
        self.find(ticket.stream)
            .is_none_or(|timeline| timeline.progress.completed() >= ticket.number)
    }

    /// Whether the calling thread is delivering notices, so that waiting for one would never end.
    pub(crate) fn delivers_here(&self) -> bool {
        self.is_only_thread() || self.delivering.lock().contains(&std::thread::current().id())
    }

    /// Checks that the calling thread may wait for the device.
    ///
    /// # Errors
    /// [`Error::Misuse`] inside the output function: the kernel that prints ends after the function, so the wait would
    /// not end. The errors of [`check_thread`](Self::check_thread).
    #[inline]
    pub(crate) fn check_may_wait(&self) -> Result<()> {
        self.output.check_may_wait()?;
        self.check_thread()
    }

    /// Checks that another thread delivers what the calling thread waits for.
    ///
    /// # Errors
    /// [`Error::Misuse`] on the thread that alone delivers notices and replies.
    #[inline]
    pub(crate) fn check_thread(&self) -> Result<()> {
        if self.is_only_thread() { Err(Misuse::BlockingWaker.into()) } else { Ok(()) }
    }

    #[inline]
    fn is_only_thread(&self) -> bool {
        self.only_thread.get().is_some_and(|thread| *thread == std::thread::current().id())
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

/// If the pool has this many busy streams of one priority, and no idle one, it lends the oldest of them again.
const MAX_BUSY_SPARES: usize = 16;

#[derive(Default)]
pub(crate) struct SpareStreams(Mutex<Vec<Arc<Timeline>>>);

impl SpareStreams {
    /// Takes an idle stream of this priority. If there is none, but at least [`MAX_BUSY_SPARES`] busy ones, takes the
    /// one that came back first. Busy streams are avoided because they may run abandoned work for a long time.
    pub(crate) fn take(&self, priority: i32) -> Option<Arc<Timeline>> {
        self.take_idle(priority).or_else(|| {
            self.take_nth(|spare| {
                let mut alike = (0..spare.len()).filter(|at| spare[*at].priority == priority);
                let oldest = alike.next();
                oldest.filter(|_| alike.count() + 1 >= MAX_BUSY_SPARES)
            })
        })
    }

    /// A stream that is known to be idle.
    pub(crate) fn take_idle(&self, priority: i32) -> Option<Arc<Timeline>> {
        let idle = |stream: &Arc<Timeline>| stream.priority == priority && !stream.is_busy();
        self.take_nth(|spare| spare.iter().rposition(idle))
    }

    /// Takes all streams that are known to be idle, and returns their ids.
    pub(crate) fn take_all_idle(&self) -> Vec<StreamId> {
        let mut ids = Vec::new();
        self.0.lock().retain(|stream| {
            let is_busy = stream.is_busy();
            if !is_busy {
                ids.push(stream.id);
            }
            is_busy
        });
        ids
    }

    fn take_nth(
        &self,
        find: impl FnOnce(&[Arc<Timeline>]) -> Option<usize>,
    ) -> Option<Arc<Timeline>> {
        let mut spare = self.0.lock();
        let found = find(&spare)?;
        Some(spare.remove(found))
    }

    pub(crate) fn give(&self, stream: Arc<Timeline>) {
        self.0.lock().push(stream);
    }
}

type Print = dyn Fn(&str) + Send + Sync;

/// The destination of the text: a function of the user, or standard output.
#[derive(Default)]
pub(crate) struct Output {
    print: parking_lot::RwLock<Option<Arc<Print>>>,
    /// The threads that are inside the function now. The kernels that print go on when it returns.
    printing: Mutex<Vec<ThreadId>>,
    /// The number of these threads, so that other threads need no lock.
    count: AtomicUsize,
}

impl Output {
    /// Replaces the function.
    pub(crate) fn set(&self, print: Arc<Print>) {
        let previous = self.print.write().replace(print);
        drop(previous);
    }

    /// Prints. Nothing is printed if standard output is closed, or if the function panics.
    pub(crate) fn print(&self, text: &str) {
        let print = self.print.read().clone();
        let Some(print) = print else {
            _ = std::io::stdout().write_all(text.as_bytes());
            return;
        };
        let this = std::thread::current().id();
        self.printing.lock().push(this);
        self.count.fetch_add(1, Ordering::Relaxed);
        let printed = catch_unwind(AssertUnwindSafe(|| print(text)));
        self.count.fetch_sub(1, Ordering::Relaxed);
        let mut printing = self.printing.lock();
        if let Some(at) = printing.iter().rposition(|thread| *thread == this) {
            printing.swap_remove(at);
        }
        drop(printing);
        if let Err(payload) = printed {
            discard_panic(payload);
        }
    }

    /// Checks that the calling thread is outside the function.
    ///
    /// # Errors
    /// [`Error::Misuse`] inside it.
    #[inline]
    pub(crate) fn check_may_wait(&self) -> Result<()> {
        // Relaxed: the thread itself has counted.
        if self.count.load(Ordering::Relaxed) == 0 { Ok(()) } else { self.check_this_thread() }
    }

    #[cold]
    fn check_this_thread(&self) -> Result<()> {
        if !self.printing.lock().contains(&std::thread::current().id()) {
            return Ok(());
        }
        Err(Misuse::WaitInOutput.into())
    }
}
