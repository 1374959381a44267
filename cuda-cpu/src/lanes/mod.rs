//! The lanes of a warp: masks, and functions that process a whole warp at once (`simd`).
//!
//! This folder uses `memory` for accesses of whole warps. Most other folders use it.

pub(crate) mod simd;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Number of lanes in a warp.
pub(crate) const LANES: usize = 32;

/// Mask of all lanes.
pub(crate) const FULL: u32 = u32::MAX;

/// Iterates over the lanes in a mask, lowest first.
#[inline(always)]
pub(crate) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let lane = left.trailing_zeros() as usize;
        left &= left - 1;
        Some(lane)
    })
}
