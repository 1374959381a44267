//! The queues of dropped resources that still have to be given back to the device. `Drop` only pushes to them;
//! `reclaim_memory` and `reclaim_all` in `reclaim` empty them.
//!
//! A queue is a list that many threads push to, and from which one call takes all items. A check for items takes no
//! lock.

use std::sync::{Arc, atomic::AtomicUsize as Counter};

use smallvec::SmallVec;

use crate::{
    protocol::{AllocId, ForeignOwner, GraphId, ModuleId, PoolId, StreamId, Ticket},
    runtime::pools::PoolCore,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

#[derive(Default)]
pub(crate) struct Dropped {
    pub(super) frees: Inbox<Freed>,
    /// The number of threads that have taken `frees` and not yet freed all of it.
    freeing: Counter,
    pub(super) others: Inbox<Retired>,
}

impl Dropped {
    /// Counts this thread as one that frees, until the value is dropped.
    pub(super) fn count_freeing(&self) -> impl Drop {
        struct Freeing<'a>(&'a Counter);
        impl Drop for Freeing<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.freeing.fetch_add(1, Ordering::SeqCst);
        Freeing(&self.freeing)
    }

    pub(super) fn is_freeing(&self) -> bool {
        self.freeing.load(Ordering::SeqCst) > 0
    }
}

/// An allocation that was dropped.
pub(crate) struct Freed {
    pub(crate) id: AllocId,
    /// Its size, and the bytes that it was charged with.
    pub(crate) bytes: u64,
    /// The last use per stream.
    pub(crate) last_uses: SmallVec<[Ticket; 4]>,
    pub(crate) origin: Origin,
}

/// The count that an allocation was charged to, besides that of the device.
pub(crate) enum Origin {
    /// The default pool.
    Default,
    /// Another pool. Dropped after the free was sent.
    Pool(Arc<PoolCore>),
    /// Memory of no pool.
    NoPool,
}

/// A graph, a module, a pool, a stream or foreign memory that was dropped, or launches whose graph was.
pub(super) enum Retired {
    /// Dropped at once: every launch of it is complete.
    Graph(GraphId),
    /// Unloaded once all of these are known to be complete.
    Module(ModuleId, Vec<Ticket>),
    /// Dropped at once: every allocation of it was freed.
    Pool(PoolId),
    /// Destroyed once it has run everything.
    Stream(StreamId),
    /// The last launch on a stream, which retains the resources of the launches. A report of it is requested.
    Launch(Ticket),
    /// Foreign memory. Forgotten, and its owner dropped, once all of the tickets are known to be complete.
    Foreign(AllocId, Vec<Ticket>, ForeignOwner),
}

pub(crate) struct Inbox<T> {
    items: Mutex<Vec<T>>,
    /// The number of items, readable without the lock. Stored under the lock.
    waiting: AtomicUsize,
}

impl<T> Inbox<T> {
    pub(crate) fn push(&self, item: T) {
        let mut items = self.items.lock();
        items.push(item);
        self.waiting.store(items.len(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Takes the newest item for which `fits` returns true. Looks at the 16 newest items only, to bound the time under
    /// the lock.
    pub(crate) fn take_last(&self, fits: impl FnMut(&T) -> bool) -> Option<T> {
        const SEARCHED: usize = 16;
        if self.is_empty() {
            return None;
        }
        let mut items = self.items.lock();
        let found = items.iter().rev().take(SEARCHED).position(fits)?;
        let at = items.len() - 1 - found;
        let item = items.remove(at);
        self.waiting.store(items.len(), Ordering::Release);
        Some(item)
    }

    /// Calls `look` with all items, under the lock.
    pub(crate) fn with_all<R>(&self, look: impl FnOnce(&[T]) -> R) -> R {
        look(&self.items.lock())
    }

    pub(crate) fn take(&self) -> Vec<T> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut items = self.items.lock();
        self.waiting.store(0, Ordering::Release);
        std::mem::take(&mut items)
    }
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), waiting: AtomicUsize::new(0) }
    }
}
