//! `CapturePool`: memory that recordings share for their temporary buffers.

use std::sync::Arc;

use super::allocation::Allocation;
use crate::{
    protocol::{Error, Misuse, Result},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// The maximum number of idle allocations that a pool holds.
const MAX_IDLE: usize = 4096;

/// Memory for the temporary buffers of captures. A buffer is temporary if no handle of it is left when the capture
/// ends.
///
/// When a capture ends, its temporary buffers take the memory that earlier captures of the pool left there. So graphs
/// that were captured with one pool need this memory once. Their launches are ordered, as all uses of the same memory
/// are. A capture with a sealed pool is an error, so a program can ensure that no later capture uses the pool.
#[derive(Default)]
pub struct CapturePool {
    idle: Mutex<Vec<Arc<Allocation>>>,
    sealed: AtomicBool,
}

impl CapturePool {
    /// Creates a pool without memory.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Seals the pool: captures with it fail from now on, and so do allocations in a capture that has begun.
    pub fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    /// Ends the effect of [`seal`](Self::seal).
    pub fn unseal(&self) {
        self.sealed.store(false, Ordering::Release);
    }

    /// Returns whether the pool is sealed.
    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Returns the bytes of device memory that the pool holds for later captures.
    pub fn idle_bytes(&self) -> u64 {
        self.idle.lock().iter().map(|allocation| allocation.bytes()).sum()
    }

    /// Releases the memory that the pool holds for later captures. Graphs keep the memory that they use.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }

    /// Checks that a capture may use the pool.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it is sealed.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_sealed() { Err(Error::Misuse(Misuse::SealedPool)) } else { Ok(()) }
    }

    /// Takes idle memory in the place of `memory`: of the same device and memory pool, with at least as many bytes, and
    /// less than twice as many. `None` if there is none.
    pub(crate) fn take_like(&self, memory: &Allocation) -> Option<Arc<Allocation>> {
        let bytes = memory.bytes();
        let pool_of = |allocation: &Allocation| allocation.pool().map(|pool| pool.id);
        let mut idle = self.idle.lock();
        let fits = |allocation: &Allocation| {
            allocation.bytes() >= bytes && allocation.bytes() / 2 < bytes.max(1)
        };
        let is_alike = |allocation: &Allocation| {
            allocation.device() == memory.device() && pool_of(allocation) == pool_of(memory)
        };
        let candidates = idle
            .iter()
            .enumerate()
            .filter(|(_, allocation)| fits(allocation) && is_alike(allocation));
        let best = candidates.min_by_key(|(_, allocation)| allocation.bytes()).map(|(at, _)| at);
        best.map(|at| idle.swap_remove(at))
    }

    /// Holds memory for later captures.
    pub(crate) fn give(&self, memory: impl IntoIterator<Item = Arc<Allocation>>) {
        let mut idle = self.idle.lock();
        let room = MAX_IDLE.saturating_sub(idle.len());
        idle.extend(memory.into_iter().take(room));
    }
}

impl std::fmt::Debug for CapturePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sealed = if self.is_sealed() { ", sealed" } else { "" };
        write!(f, "CapturePool({} idle bytes{sealed})", self.idle_bytes())
    }
}
