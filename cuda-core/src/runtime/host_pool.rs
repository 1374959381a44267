//! A pool of host blocks: pinning memory is slow, so blocks are used again and again.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    order::Retain,
    protocol::{Backend, Error, HostBlock, Result},
    sync::Mutex,
};

/// The maximum number of bytes of idle host memory that a device keeps for later copies. More goes back to the system.
pub const HOST_POOL_LIMIT: usize = 256 << 20;

/// The smallest block, in bytes.
const SMALLEST: usize = 4 << 10;

/// Idle blocks. All sizes are powers of two times [`SMALLEST`].
#[derive(Default)]
pub(crate) struct HostPool(Mutex<Idle>);

#[derive(Default)]
struct Idle {
    /// Ordered by idle time, the longest first.
    blocks: VecDeque<Arc<HostBlock>>,
    bytes: usize,
}

impl HostPool {
    /// An idle block of at least `bytes` bytes, if there is one. Its contents are those of its last use.
    pub(crate) fn take_idle(self: &Arc<Self>, bytes: usize) -> Option<Arc<PooledBlock>> {
        let block = self.0.lock().take(block_size(bytes))?;
        Some(self.lent(block))
    }

    /// A block of at least `bytes` bytes, an idle one or a new one. A new one may take long: see
    /// [`Capabilities::slow_host_blocks`](crate::protocol::Capabilities).
    pub(crate) fn take(
        self: &Arc<Self>,
        backend: &dyn Backend,
        bytes: usize,
    ) -> Result<Arc<PooledBlock>> {
        match self.take_idle(bytes) {
            Some(pooled) => Ok(pooled),
            None => {
                let block = backend.host_block(block_size(bytes))?;
                if block.len() < bytes {
                    return Err(too_short(bytes, block.len()));
                }
                Ok(self.lent(Arc::new(block)))
            }
        }
    }

    fn lent(self: &Arc<Self>, block: Arc<HostBlock>) -> Arc<PooledBlock> {
        Arc::new(PooledBlock { block, pool: self.clone() })
    }
}

#[cold]
fn too_short(requested: usize, given: usize) -> Error {
    let detail = format!(
        "{requested} bytes were requested, the block has {given}; report this bug of the backend"
    );
    Error::Host { what: "a block of host memory is too short".into(), detail }
}

fn block_size(bytes: usize) -> usize {
    bytes.max(SMALLEST).checked_next_power_of_two().unwrap_or(bytes)
}

impl Idle {
    fn take(&mut self, size: usize) -> Option<Arc<HostBlock>> {
        let found = self.blocks.iter().rposition(|block| block.len() == size)?;
        let block = self.blocks.remove(found)?;
        self.bytes -= block.len();
        Some(block)
    }

    /// Takes a block back. Returns the blocks that have been idle for longest, as many as exceed the limit. So blocks
    /// of sizes that are no longer used are evicted first.
    fn give(&mut self, block: Arc<HostBlock>) -> Vec<Arc<HostBlock>> {
        self.bytes += block.len();
        self.blocks.push_back(block);
        let mut surplus = Vec::new();
        while self.bytes > HOST_POOL_LIMIT
            && let Some(oldest) = self.blocks.pop_front()
        {
            self.bytes -= oldest.len();
            surplus.push(oldest);
        }
        surplus
    }
}

/// A block in use. It goes back to the pool when its last owner drops it.
pub(crate) struct PooledBlock {
    block: Arc<HostBlock>,
    pool: Arc<HostPool>,
}

impl PooledBlock {
    pub(crate) fn block(&self) -> &Arc<HostBlock> {
        &self.block
    }
}

impl Retain for PooledBlock {
    fn host_bytes(&self) -> usize {
        self.block.len()
    }
}

impl Drop for PooledBlock {
    fn drop(&mut self) {
        let surplus = self.pool.0.lock().give(self.block.clone());
        drop(surplus);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn longest_idle_blocks_are_evicted_first() {
        let block = |bytes| Arc::new(HostBlock::heap(bytes).unwrap());
        let mut idle = Idle::default();
        let half = HOST_POOL_LIMIT / 2;
        assert!(idle.give(block(half)).is_empty() && idle.give(block(half)).is_empty());
        let surplus = idle.give(block(SMALLEST));
        assert_eq!(surplus.iter().map(|block| block.len()).collect::<Vec<_>>(), [half]);
        assert!(idle.take(SMALLEST).is_some() && idle.take(half).is_some());
        assert!(idle.take(half).is_none());
        assert_eq!(idle.bytes, 0);
        let larger = idle.give(block(HOST_POOL_LIMIT + SMALLEST));
        assert_eq!((larger.len(), idle.bytes), (1, 0));
    }
}
