//! What is kept per stream, and the table in which notices and other streams find it.
//!
//! # Who may touch what
//! - `published` is stored by whoever holds `order`, after the backend took the submission; anyone reads it.
//! - `order` is held across check, waits, backend call and publication of one submission. No thread holds
//!   the `order` of two streams: an edge needs only the producer's `published`, read *before* its event
//!   is recorded.
//! - An allocation's usage is noted after publication, so a ticket that anyone sees is in its stream.

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::{
    Backend, Command, Error, Notice, NoticeSink, Result, StreamId, device::DeviceInner,
    hazard::Ticket, host_pool::Lease, progress::Progress,
};

pub(crate) struct StreamState {
    pub(crate) id: StreamId,
    pub(crate) published: AtomicU64,
    pub(crate) progress: Arc<Progress>,
    pub(crate) order: Mutex<Order>,
}

#[derive(Default)]
pub(crate) struct Order {
    /// How far this stream is ordered after each other one.
    pub(crate) covered: FxHashMap<StreamId, u64>,
    /// The last submission for which a notice is on its way.
    pub(crate) notified: u64,
    /// Host blocks that submissions use, oldest first.
    pub(crate) retained: VecDeque<(u64, Arc<Lease>)>,
}

impl Order {
    pub(crate) fn covers(&self, ticket: Ticket) -> bool {
        self.covered.get(&ticket.stream).is_some_and(|number| *number >= ticket.number)
    }

    pub(crate) fn cover(&mut self, stream: StreamId, number: u64) {
        let covered = self.covered.entry(stream).or_default();
        *covered = (*covered).max(number);
    }
}

impl StreamState {
    pub(crate) fn new(id: StreamId) -> Arc<Self> {
        Arc::new(Self {
            id,
            published: AtomicU64::new(0),
            progress: Arc::default(),
            order: Mutex::default(),
        })
    }

    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.progress.completed() < self.published() && self.progress.failure().is_none()
    }

    /// Makes sure that a notice comes once `number` has run.
    pub(crate) fn notify_at(
        &self,
        backend: &dyn Backend,
        order: &mut Order,
        number: u64,
    ) -> Result<()> {
        if order.notified >= number {
            return Ok(());
        }
        let token = self.published();
        backend.enqueue(self.id, Command::Notify { token }, &[])?;
        order.notified = token;
        Ok(())
    }

    /// Everything up to `number` has run: wakes its waiters and gives back its host blocks.
    pub(crate) fn advance(&self, number: u64) {
        self.progress.advance(number);
        self.release(number);
    }

    fn release(&self, number: u64) {
        let mut order = self.order.lock();
        if order.retained.is_empty() {
            return;
        }
        let done = order.retained.partition_point(|(last_use, _)| *last_use <= number);
        let released: Vec<_> = order.retained.drain(..done).collect();
        drop(order);
        drop(released);
    }
}

impl Drop for StreamState {
    /// Blocks that a stream still holds here belong to a device that failed: it may yet write to them.
    fn drop(&mut self) {
        let completed = self.progress.completed();
        for (last_use, lease) in self.order.get_mut().retained.drain(..) {
            if last_use > completed {
                std::mem::forget(lease);
            }
        }
    }
}

/// The live streams of a device.
#[derive(Default)]
pub(crate) struct Streams {
    table: RwLock<FxHashMap<StreamId, Arc<StreamState>>>,
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

    pub(crate) fn remove(&self, id: StreamId) {
        let removed = self.table.write().remove(&id);
        drop(removed);
    }

    /// A stream that is gone has run everything it ever had.
    pub(crate) fn find(&self, id: StreamId) -> Option<Arc<StreamState>> {
        self.table.read().get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<StreamState>> {
        self.table.read().values().cloned().collect()
    }

    /// One stream met an error; if the device is lost by it, so are all others.
    pub(crate) fn fail(&self, state: &StreamState, error: Error) {
        if error.is_sticky() {
            self.all().iter().for_each(|state| state.progress.fail(error.clone()));
        }
        state.progress.fail(error);
    }

    pub(crate) fn is_complete(&self, ticket: Ticket) -> bool {
        self.find(ticket.stream).is_none_or(|state| state.progress.completed() >= ticket.number)
    }
}

impl NoticeSink for Streams {
    fn notice(&self, notice: Notice) {
        let Some(state) = self.find(notice.stream) else { return };
        match notice.status {
            Ok(()) => state.advance(notice.token),
            Err(error) => self.fail(&state, error),
        }
        if let Some(device) = self.device.get().and_then(Weak::upgrade) {
            device.reclaim_all();
        }
    }
}
