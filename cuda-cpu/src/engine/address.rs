//! State spaces and the windows through which generic addresses reach them.
//!
//! One block runs on one thread at a time, so shared and local memory belong to that thread alone;
//! the pointers here are set when a warp is entered and hold until it is left.

use std::marker::PhantomData;

/// Generic address of shared memory's first byte.
pub(crate) const SHARED_WINDOW: u64 = 0x0100_0000;
/// Generic address of local memory's first byte: the same for every lane.
pub(crate) const LOCAL_WINDOW: u64 = 0x0200_0000;
/// Generic address of the kernel's parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x0400_0000;
/// Addresses of functions: this plus [`FUNCTION_STEP`] times the index. Nothing can be read there.
pub(crate) const FUNCTION_WINDOW: u64 = 0x0500_0000;
/// See [`FUNCTION_WINDOW`].
pub(crate) const FUNCTION_STEP: u64 = 16;
/// Size of each window.
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

/// The spaces beside global memory.
#[derive(Debug)]
pub(crate) struct Spaces<'a> {
    pub(crate) shared: Segment,
    /// Lane 0's local memory; the other lanes' follow at `local.size` bytes each.
    pub(crate) local: Segment,
    /// Where the running frame's local bytes begin.
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

    /// Host address of bytes in `lane`'s local memory.
    #[inline(always)]
    pub(crate) fn local(&self, lane: usize, at: u64, bytes: u64) -> Option<*mut u8> {
        let first = self.local.locate(at, bytes)?;
        Some(first.wrapping_add(lane * self.local.size as usize))
    }
}
