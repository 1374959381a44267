//! State spaces, and the windows of generic addresses that map to them.
//!
//! One thread runs a block at a time, so it has exclusive access to the block's shared and local memory. The pointers
//! in [`Spaces`] are set when a warp is entered and are valid until the warp is left.

use std::marker::PhantomData;

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
            local: Segment::EMPTY,
            local_base: 0,
            params,
            _not_send: PhantomData,
        }
    }

    /// Returns the host address of `bytes` bytes at offset `at` of `lane`'s local memory.
    #[inline(always)]
    pub(crate) fn local(&self, lane: usize, at: u64, bytes: u64) -> Option<*mut u8> {
        let first = self.local.locate(at, bytes)?;
        Some(first.wrapping_add(lane * self.local.size as usize))
    }
}
