//! State spaces, and the windows of generic addresses that map to them.

use crate::fault::FaultSpace;

/// Generic address of the first byte of shared memory.
pub(crate) const SHARED_WINDOW: u64 = 0x0100_0000;
/// Generic address of the first byte of local memory. It is the same for every lane.
pub(crate) const LOCAL_WINDOW: u64 = 0x0200_0000;
/// Generic address of the kernel's parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x0400_0000;
/// Base of function addresses: a function's address is this plus [`FUNCTION_STEP`] times its index. The window cannot
/// be read.
pub(crate) const FUNCTION_WINDOW: u64 = 0x0500_0000;
/// Distance between the addresses of two functions. See [`FUNCTION_WINDOW`].
pub(crate) const FUNCTION_STEP: u64 = 16;
/// Size of each window in bytes.
pub(crate) const WINDOW: u64 = 0x0100_0000;

/// Distance between the shared memories of two blocks of a cluster, in the addresses of `mapa`. It is at least the
/// shared memory of a block.
pub(crate) const CLUSTER_STEP: u64 = 1 << 18;

const _: () = assert!(CLUSTER_STEP > super::MAX_SHARED_BYTES as u64);
const _: () = assert!(CLUSTER_STEP * (super::MAX_CLUSTER_BLOCKS as u64 + 1) <= WINDOW);

/// Returns the address of a byte in the shared memory of the block with this rank, from any address of that byte in a
/// block. It works in every block of the cluster. Keeps the window of a generic address.
pub(crate) const fn in_block(address: u64, rank: u32) -> u64 {
    let (window, at) = (address & !(WINDOW - 1), address & (CLUSTER_STEP - 1));
    window + (rank as u64 + 1) * CLUSTER_STEP + at
}

/// Returns the rank of the block to whose shared memory an address belongs. `None` is the running block itself.
pub(crate) const fn block_of(address: u64) -> Option<u32> {
    match (address & (WINDOW - 1)) / CLUSTER_STEP {
        0 => None,
        step => Some(step as u32 - 1),
    }
}

/// Returns the space of a generic address, and its address there.
pub(crate) fn generic(address: u64) -> (FaultSpace, u64) {
    let within = |window: u64| address.checked_sub(window).filter(|&at| at < WINDOW);
    if let Some(at) = within(SHARED_WINDOW) {
        (FaultSpace::Shared, at)
    } else if let Some(at) = within(LOCAL_WINDOW) {
        (FaultSpace::Local, at)
    } else if let Some(at) = within(PARAM_WINDOW) {
        (FaultSpace::Param, at)
    } else {
        (FaultSpace::Global, address)
    }
}

/// The state space of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SpaceKind {
    Global,
    Shared,
    Local,
    Generic,
}

impl SpaceKind {
    pub(crate) fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Global,
            1 => Self::Shared,
            2 => Self::Local,
            _ => Self::Generic,
        }
    }
}
