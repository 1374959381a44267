//! Queries of the occupancy of kernels.

use crate::{
    handle::kernel::module::Function,
    protocol::{LaunchConfig, Occupancy, Reply, Request},
    runtime::{Pending, unexpected},
};

impl Function {
    /// Asks how many blocks of this kernel run at the same time, for blocks with the shape and the shared memory of
    /// `config`. The grid and the attributes of `config` do not matter. Await the reply, or block on it with
    /// [`Pending::wait`]. On a lease, the reply takes a round trip.
    ///
    /// The reply also has the kernel's registers and memory, a suggested block, and the limits of cooperative grids and
    /// of clusters.
    ///
    /// A GPU's driver answers for the kernel's machine code. The CPU device answers with the limits of compute
    /// capability 9.0 (2,048 threads, 32 blocks and 228 KiB of shared memory per multiprocessor) for each of its
    /// threads, so its answer depends on the block, on the shared memory and on the number of threads alone.
    ///
    /// ```
    /// # fn example(function: &cuda_core::Function) -> cuda_core::Result<()> {
    /// use cuda_core::LaunchConfig;
    ///
    /// let occupancy = function.occupancy(LaunchConfig::new(1, 256)).wait()?;
    /// let all_at_once = LaunchConfig::new(occupancy.max_cooperative_blocks, 256).cooperative();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The reply is [`Error::Unsupported`](crate::Error::Unsupported) if the node of a lease is too old to answer, or
    /// an error of the device.
    pub fn occupancy(&self, config: LaunchConfig) -> Pending<Occupancy> {
        let request = Request::Occupancy { function: self.id(), config };
        // The reply keeps the module loaded, because the device looks the kernel up later.
        let module = self.module().clone();
        self.device().core().request(request, move |reply| {
            drop(module);
            match reply {
                Reply::Occupancy(occupancy) => Ok(occupancy),
                other => Err(unexpected(&other)),
            }
        })
    }

    /// Asks for the threads of a block that keep a multiprocessor busiest, for blocks with `shared_bytes` bytes of
    /// dynamic shared memory. [`Occupancy::launch_config`] makes a configuration of the reply.
    ///
    /// ```
    /// # fn example(function: &cuda_core::Function, n: usize) -> cuda_core::Result<()> {
    /// let config = function.suggested_block(0).wait()?.launch_config(n);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`occupancy`](Self::occupancy).
    pub fn suggested_block(&self, shared_bytes: u32) -> Pending<Occupancy> {
        self.occupancy(LaunchConfig::new(1, 32).shared_bytes(shared_bytes))
    }
}
