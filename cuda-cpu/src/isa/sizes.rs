//! Sizes of the machine that kernels see.

/// Maximum number of threads in a block.
pub const MAX_BLOCK_THREADS: u32 = 1024;

/// Maximum static and dynamic shared memory of a block, in bytes: 227 KiB.
pub const MAX_SHARED_BYTES: u32 = 227 << 10;

/// Maximum number of blocks in a cluster.
pub const MAX_CLUSTER_BLOCKS: u32 = 16;

/// The number of barriers of a block.
pub(crate) const BARRIERS: usize = 16;
