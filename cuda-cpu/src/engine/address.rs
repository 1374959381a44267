//! State spaces, and the windows of generic addresses that map to them.
//!
//! One thread runs a block at a time, so it has exclusive access to the block's shared and local memory. The pointers
//! in [`Spaces`] are set when a warp is entered and are valid until the warp is left.

use std::marker::PhantomData;

use smallvec::SmallVec;

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

const _: () = assert!(CLUSTER_STEP > super::launch::MAX_SHARED_BYTES as u64);
const _: () = assert!(CLUSTER_STEP * (super::launch::MAX_CLUSTER_BLOCKS as u64 + 1) <= WINDOW);

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

/// Memory that belongs to the running block, warp or launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) start: *mut u8,
    pub(crate) size: u64,
}

impl Segment {
    pub(crate) const EMPTY: Self = Self { start: std::ptr::null_mut(), size: 0 };

    #[inline(always)]
    pub(crate) fn locate(&self, at: u64, bytes: u64) -> Option<*mut u8> {
        (at.saturating_add(bytes) <= self.size).then(|| self.start.wrapping_add(at as usize))
    }
}

/// The state spaces other than global memory.
#[derive(Debug)]
pub(crate) struct Spaces<'a> {
    pub(crate) shared: Segment,
    /// The shared memory of each block of the cluster, in the order of their ranks. Empty for clusters of one block, and
    /// for blocks that have ended.
    pub(crate) cluster: SmallVec<[Segment; 1]>,
    /// Lane 0's local memory. The memory of the other lanes follows, `local.size` bytes each.
    pub(crate) local: Segment,
    /// Offset of the running frame in each lane's local memory.
    pub(crate) local_base: u32,
    pub(crate) params: &'a [u8],
    _not_send: PhantomData<*mut u8>,
}

impl<'a> Spaces<'a> {
    pub(crate) fn new(params: &'a [u8]) -> Self {
        Self {
            shared: Segment::EMPTY,
            cluster: SmallVec::new(),
            local: Segment::EMPTY,
            local_base: 0,
            params,
            _not_send: PhantomData,
        }
    }

    /// Returns the host address of `bytes` bytes of shared memory: of the running block, or of a block of its cluster.
    pub(crate) fn shared(&self, at: u64, bytes: u64) -> Option<*mut u8> {
        match block_of(at) {
            None => self.shared.locate(at, bytes),
            Some(rank) => self.cluster.get(rank as usize)?.locate(at & (CLUSTER_STEP - 1), bytes),
        }
    }

    /// Returns the host address of `bytes` bytes at offset `at` of `lane`'s local memory.
    #[inline(always)]
    pub(crate) fn local(&self, lane: usize, at: u64, bytes: u64) -> Option<*mut u8> {
        let first = self.local.locate(at, bytes)?;
        Some(first.wrapping_add(lane * self.local.size as usize))
    }
}
