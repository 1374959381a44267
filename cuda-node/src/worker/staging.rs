//! Staging memory: host blocks that copies of a session use, with a limit.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use cuda_core::{Backend, Result, protocol::HostBlock};
use parking_lot::{Condvar, Mutex};

/// The size of the largest block in bytes. Longer copies use several blocks.
pub(super) const PIECE: usize = 1 << 20;

/// The size of the smallest block in bytes.
const SMALLEST: usize = 4 << 10;

/// A pool of blocks. Sizes are powers of two from 4 KiB to [`PIECE`].
pub(super) struct Staging {
    backend: Arc<dyn Backend>,
    limit: usize,
    /// The bytes of blocks that belong to no pool.
    outside: AtomicUsize,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Arc<HostBlock>>,
    /// Bytes of all blocks, idle and in use.
    bytes: usize,
    closed: bool,
}

/// A block in use. It goes back to its pool when it is dropped.
pub(super) struct Staged {
    block: Arc<HostBlock>,
    staging: Arc<Staging>,
    /// Whether the block goes back to the pool.
    is_pooled: bool,
}

impl Staging {
    /// Creates a pool with at most `limit` bytes, at least one [`PIECE`].
    pub(super) fn new(backend: Arc<dyn Backend>, limit: usize) -> Arc<Self> {
        let limit = limit.max(PIECE);
        Arc::new(Self {
            backend,
            limit,
            outside: AtomicUsize::new(0),
            pool: Mutex::default(),
            returned: Condvar::new(),
        })
    }

    /// Takes a block of at least `bytes` bytes, at most [`PIECE`]. Returns `None` if the limit is reached.
    pub(super) fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Result<Staged>> {
        let size = bytes.clamp(SMALLEST, PIECE).next_power_of_two();
        {
            let mut pool = self.pool.lock();
            if let Some(found) = pool.idle.iter().rposition(|block| block.len() == size) {
                let block = pool.idle.swap_remove(found);
                return Some(Ok(self.pooled(block)));
            }
            let idle: usize = pool.idle.iter().map(|block| block.len()).sum();
            if pool.bytes + size > self.limit {
                if pool.bytes - idle + size > self.limit {
                    return None;
                }
                // The idle blocks have other sizes.
                pool.bytes -= idle;
                pool.idle.clear();
            }
            pool.bytes += size;
        }
        let block = self.backend.host_block(size).inspect_err(|_| self.pool.lock().bytes -= size);
        Some(block.map(|block| self.pooled(Arc::new(block))))
    }

    /// As [`try_take`](Self::try_take), but waits for a block. Returns `None` if the pool is closed.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Result<Staged>> {
        loop {
            if let Some(taken) = self.try_take(bytes) {
                return Some(taken);
            }
            let mut pool = self.pool.lock();
            if pool.closed {
                return None;
            }
            // The next attempt finds, or replaces, a block that was returned meanwhile.
            if pool.idle.is_empty() {
                self.returned.wait(&mut pool);
            }
        }
    }

    fn pooled(self: &Arc<Self>, block: Arc<HostBlock>) -> Staged {
        Staged { block, staging: self.clone(), is_pooled: true }
    }

    /// Copies `bytes`, at most [`PIECE`], to a block. If the limit of the pool is reached, the block is ordinary
    /// memory. Returns `None` if there is as much of that too.
    pub(super) fn copy(self: &Arc<Self>, bytes: &[u8]) -> Option<Result<Staged>> {
        let staged = match self.try_take(bytes.len()) {
            Some(staged) => staged,
            None => {
                if self.outside.load(Ordering::Relaxed) + bytes.len() > self.limit {
                    return None;
                }
                HostBlock::heap(bytes.len()).map(|block| {
                    self.outside.fetch_add(block.len(), Ordering::Relaxed);
                    Staged { block: Arc::new(block), staging: self.clone(), is_pooled: false }
                })
            }
        };
        Some(staged.map(|mut staged| {
            staged.fill(0, bytes);
            staged
        }))
    }

    /// Ends all waits.
    pub(super) fn close(&self) {
        self.pool.lock().closed = true;
        self.returned.notify_all();
    }
}

impl Staged {
    pub(super) fn block(&self) -> &Arc<HostBlock> {
        &self.block
    }

    /// Writes `bytes` at `offset`. Returns whether the bytes fit.
    pub(super) fn fill(&mut self, offset: usize, bytes: &[u8]) -> bool {
        // SAFETY: no submission names the block: it was taken from the pool, and it is not submitted while it is
        // borrowed mutably. See `Staged::block`, whose callers submit it.
        let place = unsafe { self.block.shared_bytes_mut(offset..offset + bytes.len()) };
        place.map(|place| place.copy_from_slice(bytes)).is_some()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_pooled {
            self.staging.pool.lock().idle.push(self.block.clone());
            self.staging.returned.notify_all();
        } else {
            self.staging.outside.fetch_sub(self.block.len(), Ordering::Relaxed);
        }
    }
}
