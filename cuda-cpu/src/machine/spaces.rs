//! Memory of the running block, warp or launch.
//!
//! One thread runs a block at a time, so it has exclusive access to the block's shared and local memory. The pointers
//! in [`Spaces`] are set when a warp is entered and are valid until the warp is left.

use std::marker::PhantomData;

use smallvec::SmallVec;

use crate::isa::address::{CLUSTER_STEP, block_of};

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
