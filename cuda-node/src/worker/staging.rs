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

/// A block that a caller may have.
enum Reserved {
    Idle(Arc<HostBlock>),
    /// A new block of this size, which counts already.
    New(usize),
}

impl Pool {
    /// Reserves a block of this size. Returns `None` if the limit is reached.
    fn reserve(&mut self, size: usize, limit: usize) -> Option<Reserved> {
        if let Some(found) = self.idle.iter().rposition(|block| block.len() == size) {
            return Some(Reserved::Idle(self.idle.swap_remove(found)));
        }
        if self.bytes + size > limit {
            let idle: usize = self.idle.iter().map(|block| block.len()).sum();
            if self.bytes - idle + size > limit {
                return None;
            }
            // The idle blocks have other sizes.
            self.bytes -= idle;
            self.idle.clear();
        }
        self.bytes += size;
        Some(Reserved::New(size))
    }
}

/// The size of a block for this number of bytes.
fn size_for(bytes: usize) -> usize {
    bytes.clamp(SMALLEST, PIECE).next_power_of_two()
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
        let reserved = self.pool.lock().reserve(size_for(bytes), self.limit)?;
        Some(self.block(reserved))
    }

    /// As [`try_take`](Self::try_take), but waits for a block. Returns `None` if the pool is closed.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Result<Staged>> {
        let mut pool = self.pool.lock();
        let reserved = loop {
            if let Some(reserved) = pool.reserve(size_for(bytes), self.limit) {
                break reserved;
            }
            if pool.closed {
                return None;
            }
            // Idle blocks of other sizes, which may be there, are too small.
            self.returned.wait(&mut pool);
        };
        drop(pool);
        Some(self.block(reserved))
    }

    /// Returns the block that was reserved.
    fn block(self: &Arc<Self>, reserved: Reserved) -> Result<Staged> {
        match reserved {
            Reserved::Idle(block) => Ok(self.pooled(block)),
            Reserved::New(size) => match self.backend.host_block(size) {
                Ok(block) => Ok(self.pooled(Arc::new(block))),
                Err(error) => {
                    self.pool.lock().bytes -= size;
                    self.returned.notify_all();
                    Err(error)
                }
            },
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

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use cuda_core::{
        NoticeSink,
        protocol::{Notice, Provider as _},
    };
    use cuda_cpu::CpuProvider;

    use super::*;

    struct Ignore;

    // SAFETY: keeps nothing.
    unsafe impl NoticeSink for Ignore {
        unsafe fn notice(&self, _: Notice) {}
    }

    /// A block of another size is idle, and its place is too small: a wait that looked at it again and again used a
    /// processor.
    #[test]
    fn wait_for_a_block_does_not_spin() {
        let backend = CpuProvider::default().open(0, Arc::new(Ignore)).unwrap();
        let staging = Staging::new(backend, PIECE);
        let half = staging.take(PIECE / 2).unwrap().unwrap();
        drop(staging.take(SMALLEST).unwrap().unwrap());
        let waits = staging.clone();
        let whole =
            thread::spawn(move || waits.take(PIECE).map(|taken| taken.unwrap().block.len()));
        // It finds a thread only if that sleeps.
        let started = Instant::now();
        while !staging.returned.notify_one() {
            assert!(started.elapsed() < Duration::from_secs(20), "the thread does not sleep");
            thread::sleep(Duration::from_millis(1));
        }
        drop(half);
        assert_eq!(whole.join().unwrap(), Some(PIECE));
    }
}
