//! The resources of kernels, and the number of blocks that run at the same time.

use super::launch_config::{LaunchConfig, blocks};

/// The resources of a kernel, as the device's compiler chose them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FunctionAttributes {
    /// The 32-bit registers of a thread.
    pub registers: u32,
    /// The bytes of local memory of a thread.
    pub local_bytes: u32,
    /// The bytes of shared memory of a block that the kernel itself declares.
    pub static_shared_bytes: u32,
    /// The maximum number of threads in a block.
    pub max_threads: u32,
}

/// The blocks of a kernel that run at the same time, for blocks of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// The blocks that one multiprocessor runs at the same time. It is 0 if not even one fits.
    pub blocks_per_multiprocessor: u32,
    /// The blocks that the whole device runs at the same time: the largest grid of a cooperative launch.
    pub max_cooperative_blocks: u32,
    /// The largest number of blocks in a cluster. It is 1 if the device has no clusters.
    pub max_cluster_blocks: u32,
    /// The threads of a block with which the kernel keeps a multiprocessor busiest. It does not depend on the block of
    /// the request.
    pub suggested_block: u32,
    /// The resources of the kernel. They do not depend on the block.
    pub kernel: FunctionAttributes,
}

impl Occupancy {
    /// Creates a configuration with at least one thread per element, in blocks of the suggested size. Takes integers as
    /// [`LaunchConfig::for_num_elems`] does.
    ///
    /// ```
    /// # use cuda_core::protocol::Occupancy;
    /// let occupancy = Occupancy { suggested_block: 512, ..Occupancy::default() };
    /// assert_eq!(occupancy.launch_config(1000).grid, [2, 1, 1]);
    /// ```
    pub fn launch_config(&self, elements: impl TryInto<u64>) -> LaunchConfig {
        let block = self.suggested_block.max(1);
        LaunchConfig::new(blocks(elements, block), block)
    }
}
