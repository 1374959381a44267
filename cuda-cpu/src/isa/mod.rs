//! Operands and effects of decoded instructions, as plain data, and the sizes and windows of the machine.
//!
//! `decode` makes them; `machine`, `exec`, `observe`, `schedule` and `launch` read them. This folder uses `fault` for
//! the names of state spaces. The instructions themselves are in `machine`, because a handler is a function of its
//! state.

pub(crate) mod address;
pub(crate) mod effect;
pub(crate) mod operand;

/// Maximum number of threads in a block.
pub const MAX_BLOCK_THREADS: u32 = 1024;

/// Maximum static and dynamic shared memory of a block, in bytes: 227 KiB.
pub const MAX_SHARED_BYTES: u32 = 227 << 10;

/// Maximum number of blocks in a cluster.
pub const MAX_CLUSTER_BLOCKS: u32 = 16;

/// Returns a number of ops, or of items that belong to ops, in 32 bits.
///
/// It fits: the parser limits the length of a text, and 2^32 ops take 256 GiB, so memory ends before.
pub(crate) fn index(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The number of barriers of a block.
pub(crate) const BARRIERS: usize = 16;
