//! Host blocks that submissions of a stream use, kept until it has passed them.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use crate::host_pool::Lease;

/// Blocks that a stream keeps, before it asks to be told how far it is.
pub const MAX_RETAINED: usize = 64;

/// Bytes that a stream keeps, before it asks to be told how far it is.
pub const MAX_RETAINED_BYTES: usize = 64 << 20;

#[derive(Default)]
pub(crate) struct Retained {
    blocks: Mutex<Blocks>,
    /// How many there are, so that a look need not lock. Stored under the lock.
    count: AtomicUsize,
}

#[derive(Default)]
struct Blocks {
    /// With the submission that uses each, oldest first.
    queue: VecDeque<(u64, Arc<Lease>)>,
    /// Since the stream was last asked to tell.
    unasked: usize,
    unasked_bytes: usize,
}

impl Retained {
    /// Keeps a block for a submission; whether it is time to ask how far the stream is.
    pub(crate) fn keep(&self, number: u64, lease: Arc<Lease>) -> bool {
        let mut blocks = self.blocks.lock();
        blocks.unasked += 1;
        blocks.unasked_bytes += lease.block().len();
        blocks.queue.push_back((number, lease));
        self.count.store(blocks.queue.len(), Ordering::Release);
        let ask = blocks.unasked >= MAX_RETAINED || blocks.unasked_bytes >= MAX_RETAINED_BYTES;
        if ask {
            (blocks.unasked, blocks.unasked_bytes) = (0, 0);
        }
        ask
    }

    /// Gives back what is used by nothing behind `number`.
    pub(crate) fn release(&self, number: u64) {
        if self.count.load(Ordering::Acquire) == 0 {
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
        for (last_use, lease) in self.blocks.get_mut().queue.drain(..) {
            if last_use > number {
                lease.abandon();
            }
        }
    }
}
