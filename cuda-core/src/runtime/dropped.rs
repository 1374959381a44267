//! The queues of dropped resources that still have to be given back to the device. `Drop` only pushes to them;
//! `reclaim_memory` and `reclaim_all` in `reclaim` empty them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use smallvec::SmallVec;

use super::{inbox::Inbox, pools::PoolCore};
use crate::protocol::{AllocId, ForeignOwner, GraphId, ModuleId, PoolId, StreamId, Ticket};

#[derive(Default)]
pub(crate) struct Dropped {
    pub(super) frees: Inbox<Freed>,
    /// The number of threads that have taken `frees` and not yet freed all of it.
    freeing: AtomicUsize,
    pub(super) others: Inbox<Retired>,
}

impl Dropped {
    /// Counts this thread as one that frees, until the value is dropped.
    pub(super) fn count_freeing(&self) -> impl Drop {
        struct Freeing<'a>(&'a AtomicUsize);
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
