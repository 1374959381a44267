//! A pool of host blocks: pinning memory is slow, so blocks are used again and again.

use std::sync::Arc;

use crate::{
    order::Retain,
    protocol::{Backend, Error, HostBlock, Result},
    sync::Mutex,
};

/// Bytes of idle host memory that a device keeps for the next copies. More goes back to the system.
pub const HOST_POOL_LIMIT: usize = 256 << 20;

/// The smallest block, in bytes.
const SMALLEST: usize = 4 << 10;

/// Idle blocks. All sizes are powers of two times [`SMALLEST`].
#[derive(Default)]
pub(crate) struct HostPool(Mutex<Idle>);

#[derive(Default)]
struct Idle {
    blocks: Vec<Arc<HostBlock>>,
    bytes: usize,
}

impl HostPool {
    /// An idle block of at least `bytes` bytes, if there is one. Its contents are those of its last use.
    pub(crate) fn take_idle(self: &Arc<Self>, bytes: usize) -> Option<Arc<Lease>> {
        let block = self.0.lock().take(block_size(bytes))?;
        Some(self.lease(block))
    }

    /// A block of at least `bytes` bytes, an idle one or a new one. A new one may take long: see
    /// [`Capabilities::slow_host_blocks`](crate::protocol::Capabilities).
    pub(crate) fn take(
        self: &Arc<Self>,
        backend: &dyn Backend,
        bytes: usize,
    ) -> Result<Arc<Lease>> {
        match self.take_idle(bytes) {
            Some(lease) => Ok(lease),
            None => {
                let block = backend.host_block(block_size(bytes))?;
                if block.len() < bytes {
                    return Err(too_short(bytes, block.len()));
                }
                Ok(self.lease(Arc::new(block)))
            }
        }
    }

    fn lease(self: &Arc<Self>, block: Arc<HostBlock>) -> Arc<Lease> {
        Arc::new(Lease { block, pool: self.clone() })
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
        let block = self.blocks.swap_remove(found);
        self.bytes -= block.len();
        Some(block)
    }

    /// Takes a block back, or returns it where the pool is full.
    fn give(&mut self, block: Arc<HostBlock>) -> Option<Arc<HostBlock>> {
        if self.bytes + block.len() > HOST_POOL_LIMIT {
            return Some(block);
        }
        self.bytes += block.len();
        self.blocks.push(block);
        None
    }
}

/// A block in use. It goes back to the pool when its last owner drops it.
pub(crate) struct Lease {
    block: Arc<HostBlock>,
    pool: Arc<HostPool>,
}

impl Lease {
    pub(crate) fn block(&self) -> &Arc<HostBlock> {
        &self.block
    }
}

impl Retain for Lease {
    fn host_bytes(&self) -> usize {
        self.block.len()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let surplus = self.pool.0.lock().give(self.block.clone());
        drop(surplus);
    }
}
