//! Blocks of host memory, used again and again: pinning memory is slow.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{Backend, HostBlock, Result, sync::Mutex};

/// Bytes of host memory that a device keeps for the next copies; more goes back to the system.
pub const HOST_POOL_LIMIT: usize = 256 << 20;

/// The smallest block, in bytes.
const SMALLEST: usize = 4 << 10;

/// Free blocks; all sizes are powers of two times [`SMALLEST`].
#[derive(Default)]
pub(crate) struct HostPool(Mutex<Free>);

#[derive(Default)]
struct Free {
    blocks: Vec<Arc<HostBlock>>,
    bytes: usize,
}

impl HostPool {
    /// A block of at least `bytes` bytes. Its contents are whatever was there last.
    pub(crate) fn take(
        self: &Arc<Self>,
        backend: &dyn Backend,
        bytes: usize,
    ) -> Result<Arc<Lease>> {
        let size = bytes.max(SMALLEST).checked_next_power_of_two().unwrap_or(bytes);
        // Not in the `match`, where the lock would be held while a driver pins memory.
        let free = self.0.lock().take(size);
        let block = match free {
            Some(block) => block,
            None => Arc::new(backend.host_block(size)?),
        };
        Ok(Arc::new(Lease { block, pool: self.clone(), abandoned: AtomicBool::new(false) }))
    }
}

impl Free {
    fn take(&mut self, size: usize) -> Option<Arc<HostBlock>> {
        let found = self.blocks.iter().rposition(|block| block.len() == size)?;
        self.bytes -= size;
        Some(self.blocks.swap_remove(found))
    }

    /// Takes a block back, or hands it on where there is no room.
    fn give(&mut self, block: Arc<HostBlock>) -> Option<Arc<HostBlock>> {
        if self.bytes + block.len() > HOST_POOL_LIMIT {
            return Some(block);
        }
        self.bytes += block.len();
        self.blocks.push(block);
        None
    }
}

/// A block in use; it goes back when the last clone does.
pub(crate) struct Lease {
    block: Arc<HostBlock>,
    pool: Arc<HostPool>,
    abandoned: AtomicBool,
}

impl Lease {
    pub(crate) fn block(&self) -> &Arc<HostBlock> {
        &self.block
    }

    /// Never gives it back, nor to the system: a device may yet write to it.
    pub(crate) fn abandon(&self) {
        if !self.abandoned.swap(true, Ordering::Relaxed) {
            std::mem::forget(self.block.clone());
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if *self.abandoned.get_mut() {
            return;
        }
        let surplus = self.pool.0.lock().give(self.block.clone());
        drop(surplus);
    }
}
