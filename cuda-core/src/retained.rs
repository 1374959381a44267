//! What submissions of a stream use and nobody else keeps alive, kept until it has passed them.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    allocation::Allocation,
    host_pool::Lease,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Things that a stream keeps, before it asks to be told how far it is.
pub const MAX_RETAINED: usize = 64;

/// Bytes that a stream keeps, before it asks to be told how far it is.
pub const MAX_RETAINED_BYTES: usize = 64 << 20;

/// What a submission uses.
#[derive(Clone)]
pub(crate) enum Kept {
    /// Host memory.
    Host(Arc<Lease>),
    /// Memory of another device.
    Peer(Arc<Allocation>),
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Kept::Host(lease) => lease.block().len(),
            Kept::Peer(_) => 0,
        }
    }

    /// A device that failed may yet write to it, so it is never given back.
    fn abandon(self) {
        match self {
            Kept::Host(lease) => lease.abandon(),
            Kept::Peer(allocation) => std::mem::forget(allocation),
        }
    }
}

#[derive(Default)]
pub(crate) struct Retained {
    blocks: Mutex<Blocks>,
    /// How many there are, so that a look need not lock. Stored under the lock.
    count: AtomicUsize,
}

#[derive(Default)]
struct Blocks {
    /// With the submission that uses each, oldest first.
    queue: VecDeque<(u64, Kept)>,
    /// Since the stream was last asked to tell.
    unasked: usize,
    unasked_bytes: usize,
}

impl Retained {
    /// Keeps something for a submission; whether it is time to ask how far the stream is.
    pub(crate) fn keep(&self, number: u64, kept: Kept) -> bool {
        let mut blocks = self.blocks.lock();
        blocks.unasked += 1;
        blocks.unasked_bytes += kept.bytes();
        blocks.queue.push_back((number, kept));
        self.count.store(blocks.queue.len(), Ordering::Release);
        let ask = blocks.unasked >= MAX_RETAINED || blocks.unasked_bytes >= MAX_RETAINED_BYTES;
        if ask {
            (blocks.unasked, blocks.unasked_bytes) = (0, 0);
        }
        ask
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Gives back what is used by nothing behind `number`.
    pub(crate) fn release(&self, number: u64) {
        if self.is_empty() {
            return;
        }
        let mut blocks = self.blocks.lock();
        let done = blocks.queue.partition_point(|(last_use, _)| *last_use <= number);
        let released: Vec<_> = blocks.queue.drain(..done).collect();
        self.count.store(blocks.queue.len(), Ordering::Release);
        drop(blocks);
        drop(released);
    }

    /// Gives up what is used behind `number`: a device that failed may yet write to it.
    pub(crate) fn abandon_after(&mut self, number: u64) {
        for (last_use, kept) in self.blocks.get_mut().queue.drain(..) {
            if last_use > number {
                kept.abandon();
            }
        }
    }
}
