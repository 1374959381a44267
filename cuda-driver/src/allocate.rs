//! Allocations from a pool, and the recovery of memory for them.

use cuda_core::protocol::{AllocId, Error, Result, Ticket};

use super::{
    backend::CudaBackend,
    context::{Bound, MemoryPool},
};

impl CudaBackend {
    /// Allocates from a pool in the order of a stream. If there is too little memory, this makes more of it free and tries
    /// once more.
    pub(super) fn allocate(
        &self,
        pool: Option<&MemoryPool>,
        id: AllocId,
        bytes: u64,
        at: Ticket,
        bound: &Bound,
    ) -> Result<()> {
        let stream = self.streams.find(at.stream)?;
        let allocate = |scarce| self.memory.allocate(id, bytes, pool, scarce, &stream, bound);
        match allocate(false) {
            Err(Error::OutOfMemory { .. }) => {
                self.recover_memory(bound)?;
                allocate(true)?;
            }
            other => other?,
        }
        if !stream.is_windowed() || !stream.window().pass(at.number) {
            stream.set_submitted(at.number);
        }
        Ok(())
    }

    /// Makes memory free that no work uses: enqueues the frees that windows hold, and returns the free memory of all
    /// pools to the system.
    #[cold]
    fn recover_memory(&self, bound: &Bound) -> Result<()> {
        self.flush_all(bound)?;
        // The helper thread may free dropped memory.
        self.primary.reclaim.hurry();
        self.streams.all().iter().for_each(|stream| stream.settle_frees(self.primary, bound));
        self.primary.trim_pools(bound);
        Ok(())
    }
}
