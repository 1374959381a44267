//! What is kept per stream, and the table in which notices and other streams find it.
//!
//! # Who may touch what
//! - `published` is stored by whoever holds `order`, after the backend took the submission; anyone reads it.
//! - `order` is held across check, waits, backend call and publication of one submission. Only a reset of the
//!   device holds the `order` of two streams: an edge needs only the producer's `published`, read *before* its
//!   event is recorded.
//! - The thread that learns how far a stream is takes no `order`, or only tries to. Notices have a lock of their
//!   own, inside `order`.
//! - An allocation is claimed for a submission before that is published. Only a reader can be seen so early
//!   (what writes has the allocation to itself), by one reader too many: see `Stream::wait_for`.

use std::sync::{Arc, OnceLock, Weak};

use rustc_hash::FxHashMap;

use crate::{
    Backend, Command, Error, Notice, NoticeSink, Result, StreamId,
    device::DeviceInner,
    hazard::Ticket,
    implied::Implied,
    notices::Notices,
    progress::{Progress, Woken},
    retained::Retained,
    stream::MAX_IN_FLIGHT,
    sync::{
        Mutex, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

pub(crate) struct StreamState {
    pub(crate) id: StreamId,
    pub(crate) priority: i32,
    pub(crate) published: AtomicU64,
    pub(crate) progress: Arc<Progress>,
    pub(crate) order: Mutex<Order>,
    /// Not part of `order`, so that the thread that learns how far the stream is never waits for one that
    /// submits.
    pub(crate) retained: Retained,
    pub(crate) implied: Implied,
    notices: Notices,
}

/// Submissions after which a notice is asked for, if nobody else did.
const NOTICE_EVERY: u64 = MAX_IN_FLIGHT / 3;

/// Streams whose watermarks a stream remembers. Forgetting one costs a wait that was not needed.
const MAX_COVERED: usize = 64;

#[derive(Default)]
pub(crate) struct Order {
    /// How far this stream is ordered after each other one.
    pub(crate) covered: FxHashMap<StreamId, u64>,
}

impl Order {
    pub(crate) fn covers(&self, ticket: Ticket) -> bool {
        self.covered.get(&ticket.stream).is_some_and(|number| *number >= ticket.number)
    }

    pub(crate) fn cover(&mut self, stream: StreamId, number: u64) {
        if self.covered.len() >= MAX_COVERED {
            self.covered.clear();
        }
        let covered = self.covered.entry(stream).or_default();
        *covered = (*covered).max(number);
    }
}

impl StreamState {
    pub(crate) fn new(id: StreamId, priority: i32) -> Arc<Self> {
        Arc::new(Self {
            id,
            priority,
            published: AtomicU64::new(0),
            progress: Arc::default(),
            order: Mutex::default(),
            retained: Retained::default(),
            implied: Implied::default(),
            notices: Notices::default(),
        })
    }

    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// A submission is in. Called with `order` held, so numbers go up by one.
    #[inline]
    pub(crate) fn publish(&self, number: u64) {
        self.published.store(number, Ordering::Release);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.progress.completed() < self.published() && self.progress.failure().is_none()
    }

    /// Whether so much was submitted since a notice was last asked for, that it is time to learn how far the
    /// stream is: whoever waits for room should not have to wait for everything.
    #[inline]
    pub(crate) fn is_notice_due(&self) -> bool {
        let known = self.notices.last().max(self.progress.completed());
        self.published() - known.min(self.published()) >= NOTICE_EVERY
    }

    /// Makes sure that a notice comes once `number` has run.
    pub(crate) fn notify_at(&self, backend: &dyn Backend, number: u64) -> Result<()> {
        let notify = |token| self.notify(backend, token);
        self.notices.want(number, &self.published, notify)
    }

    fn notify(&self, backend: &dyn Backend, token: u64) -> Result<()> {
        // SAFETY: touches no memory; `self` is held, so the stream is not destroyed.
        unsafe { backend.enqueue(self.id, Command::Notify { token }, &[]) }
    }

    /// A notice has come: asks for the next one if somebody waits for it.
    fn ask_on(&self, backend: &dyn Backend) {
        // What cannot be asked is lost with its device, and told of that.
        let _ = self.notices.came(&self.published, |token| self.notify(backend, token));
    }

    /// The device was reset: what is not complete up to `number` is lost.
    fn recover(&self, number: u64) -> Woken {
        let woken = self.progress.recover(number);
        self.retained.release(number);
        woken
    }
}

impl Drop for StreamState {
    fn drop(&mut self) {
        self.retained.abandon_after(self.progress.completed());
    }
}

/// The live streams of a device.
#[derive(Default)]
pub(crate) struct Streams {
    table: RwLock<FxHashMap<StreamId, Arc<StreamState>>>,
    /// Twice how often the device was reset, and one more while it is being reset.
    resets: AtomicU64,
    /// Held while streams fail or recover, so that an error from before a reset does not end streams after it.
    ending: Mutex<()>,
    device: OnceLock<Weak<DeviceInner>>,
}

impl Streams {
    /// Tells where to drain what can be reclaimed when a notice arrives.
    pub(crate) fn attach(&self, device: Weak<DeviceInner>) {
        let _ = self.device.set(device);
    }

    pub(crate) fn insert(&self, state: Arc<StreamState>) {
        self.table.write().insert(state.id, state);
    }

    /// Takes a stream out, unless somebody holds it: then it may be about to be recorded on.
    pub(crate) fn remove_unused(&self, id: StreamId) -> bool {
        let mut table = self.table.write();
        // Nobody can find it while the table is locked, so a count of one stays one.
        let unused = table.get(&id).is_some_and(|state| Arc::strong_count(state) == 1);
        let removed = if unused { table.remove(&id) } else { None };
        drop(table);
        removed.is_some()
    }

    /// A stream that is gone has run everything it ever had.
    pub(crate) fn find(&self, id: StreamId) -> Option<Arc<StreamState>> {
        self.table.read().get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<StreamState>> {
        self.table.read().values().cloned().collect()
    }

    /// A number that changes when a reset begins and when it ends: to be read before what asks the device.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::SeqCst)
    }

    /// Whether no reset has begun since `resets` was read: then what the device has said in between is true of
    /// what it had then.
    pub(crate) fn not_reset_since(&self, resets: u64) -> bool {
        resets.is_multiple_of(2) && self.resets() == resets
    }

    /// A reset begins, or did not take place.
    pub(crate) fn reset_begins(&self) {
        self.resets.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn reset_failed(&self) {
        self.resets.fetch_sub(1, Ordering::SeqCst);
    }

    /// The device is lost: nothing that is not complete on any stream will be. Nothing is done if a reset has
    /// ended since the error was met.
    pub(crate) fn fail_all(&self, error: &Error, resets: u64) {
        let ending = self.ending.lock();
        let streams = if self.resets() / 2 == resets / 2 { self.all() } else { Vec::new() };
        let woken: Vec<_> =
            streams.iter().map(|state| state.progress.fail(error.clone())).collect();
        drop(ending);
        drop(woken);
    }

    /// The device was reset: what these streams had is lost, if the device was, or has run.
    pub(crate) fn recover_all(
        &self,
        streams: &[Arc<StreamState>],
        lost: Option<&Error>,
    ) -> Vec<Woken> {
        let _ending = self.ending.lock();
        let recover = |state: &Arc<StreamState>| {
            // Nobody may have been told yet.
            let told = lost.map(|error| state.progress.fail(error.clone()));
            (told, state.recover(state.published()))
        };
        let woken = streams.iter().map(recover);
        let woken = woken.flat_map(|(told, woken)| told.into_iter().chain([woken])).collect();
        // Behind that: whoever sees the new number sees as well what is lost.
        self.resets.fetch_add(1, Ordering::SeqCst);
        woken
    }

    pub(crate) fn is_complete(&self, ticket: Ticket) -> bool {
        self.find(ticket.stream).is_none_or(|state| state.progress.completed() >= ticket.number)
    }
}

impl NoticeSink for Streams {
    fn notice(&self, notice: Notice) {
        let Some(state) = self.find(notice.stream) else { return };
        self.take(&state, notice.token, notice.status);
        if let Some(device) = self.device.get().and_then(Weak::upgrade) {
            state.ask_on(&*device.backend);
            drop(state);
            device.reclaim_memory();
            // Some work has ended, and with it what was freed behind it.
            device.memory_waiters.wake();
        }
    }
}

impl Streams {
    fn take(&self, state: &StreamState, token: u64, status: Result<()>) {
        // Before the token is looked at: should the device be reset from here on, this ends nothing.
        let resets = self.resets();
        if token <= state.progress.completed() {
            return; // known already, or lost to a reset
        }
        match status {
            Ok(()) => state.advance(token),
            Err(error) if error.is_sticky() => self.fail_all(&error, resets),
            Err(error) => drop(state.progress.lose(token, error)),
        }
    }
}
