//! Functions that process the addresses of a whole warp at once, for each level of processor.
//!
//! Loads and stores are most of the work of kernels, and compilers translate these loops poorly. So they are written
//! with processor intrinsics. This file and `x86` use `memory::access`. `map`, `locate` and `load_store` are generic
//! over [`Simd`]. [`level`] detects the processor once, and the functions in `exec` that select handlers call it.
//!
//! Three handlers for each operation take three times as long to compile. So the crate's unit tests, which test
//! the code around the handlers, contain the base level only. So do builds with `--cfg one_level` for sanitizers.
//!
//! The unsafe code reads the lanes of a register (see the invariants in `machine::ctx`) and uses the instructions of
//! its level.
#![cfg_attr(any(not(target_arch = "x86_64"), test, one_level), allow(dead_code, unused_imports))]

use std::sync::LazyLock;

#[cfg(target_arch = "x86_64")]
pub(crate) use super::x86::{Avx2, Avx512};
use super::{LANES, lanes_of};
use crate::memory::access;

/// Lanes of half a warp. Blocks are often 16 threads wide.
pub(crate) const HALF: usize = LANES / 2;

/// A level of processor instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Instructions of every processor of the target.
    Base,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, VL, BW and DQ.
    Avx512,
}

static LEVEL: LazyLock<Level> = LazyLock::new(detect);

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    use std::arch::is_x86_feature_detected as has;
    if !(has!("avx2") && has!("fma")) {
        return Level::Base;
    }
    let wide = has!("avx512f") && has!("avx512vl") && has!("avx512bw") && has!("avx512dq");
    if wide { Level::Avx512 } else { Level::Avx2 }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Base
}

/// Returns the highest level of this processor for which handlers exist.
pub(crate) fn level() -> Level {
    if cfg!(any(test, one_level)) { Level::Base } else { *LEVEL }
}

/// The pattern of a warp's addresses, for each half warp by itself, because blocks are often 16 threads wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Each lane's element follows that of the lane before.
    Contiguous,
    /// All lanes of a half have the same address.
    Uniform,
    Mixed,
}

impl Pattern {
    #[inline(always)]
    pub(super) fn new(contiguous: bool, uniform: bool) -> Self {
        match (contiguous, uniform) {
            (true, _) => Self::Contiguous,
            (_, true) => Self::Uniform,
            _ => Self::Mixed,
        }
    }
}

/// Limits of valid accesses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Added to the lanes' registers, this gives the offset in the range.
    pub(crate) add: u64,
    /// The highest valid offset. It is below 2^63, and below 2^31 for 32-bit addresses.
    pub(crate) limit: u64,
    /// Mask of the bits that must be zero in an offset.
    pub(crate) align: u64,
}

/// The functions of a level.
pub(crate) trait Simd: 'static {
    /// Whether handlers visit the executing lanes one by one. This compiles several times faster than loops over all
    /// lanes.
    const SCALAR: bool = false;
    /// Returns the pattern of the addresses in a register. Elements have `STEP` bytes.
    ///
    /// # Safety
    /// `lanes` must point to the lanes of a register, and the processor must support the level.
    unsafe fn pattern_32<const STEP: u64>(lanes: *const u32) -> Pattern;
    /// # Safety
    /// As for [`pattern_32`](Self::pattern_32).
    unsafe fn pattern_64<const STEP: u64>(lanes: *const u64) -> Pattern;
    /// Returns the lanes whose offset is beyond the limit or misaligned.
    ///
    /// # Safety
    /// As for [`pattern_32`](Self::pattern_32).
    unsafe fn outside_32(lanes: *const u32, bounds: Bounds) -> u32;
    /// # Safety
    /// As for [`pattern_32`](Self::pattern_32).
    unsafe fn outside_64(lanes: *const u64, bounds: Bounds) -> u32;
    /// Copies 64 bytes. Other threads may access either side at the same time.
    ///
    /// # Safety
    /// Both pointers must be valid for 64 bytes, and the processor must support the level.
    unsafe fn copy_64(dst: *mut u8, src: *const u8);
    /// Returns the top bits of bytes.
    ///
    /// # Safety
    /// The processor must support the level.
    unsafe fn bits(bytes: &[u8; LANES]) -> u32;
    /// Writes the values of the lanes in the mask.
    ///
    /// # Safety
    /// `d` must point to the lanes of half a register, and the processor must support the level.
    unsafe fn blend_32(d: *mut u32, values: &[u32; HALF], lanes: u16);
    /// # Safety
    /// As for [`blend_32`](Self::blend_32).
    unsafe fn blend_64(d: *mut u64, values: &[u64; HALF], lanes: u16);
}

/// The functions for processors without further vector instructions: [`Level::Base`].
pub(crate) struct Base;

impl Simd for Base {
    // On other targets this is the only level, so its loops are vectorized.
    const SCALAR: bool = cfg!(target_arch = "x86_64");

    #[inline(always)]
    unsafe fn pattern_32<const STEP: u64>(lanes: *const u32) -> Pattern {
        let (mut apart, mut differ) = (0, 0);
        for lane in 0..LANES {
            // SAFETY: `lanes` points to the lanes of a register.
            let (x, first) = unsafe { (lanes.add(lane).read(), lanes.add(lane & HALF).read()) };
            differ |= x ^ first;
            apart |= x ^ first.wrapping_add((lane % HALF) as u32 * STEP as u32);
        }
        Pattern::new(apart == 0, differ == 0)
    }

    #[inline(always)]
    unsafe fn pattern_64<const STEP: u64>(lanes: *const u64) -> Pattern {
        let (mut apart, mut differ) = (0, 0);
        for lane in 0..LANES {
            // SAFETY: `lanes` points to the lanes of a register.
            let (x, first) = unsafe { (lanes.add(lane).read(), lanes.add(lane & HALF).read()) };
            differ |= x ^ first;
            apart |= x ^ first.wrapping_add((lane % HALF) as u64 * STEP);
        }
        Pattern::new(apart == 0, differ == 0)
    }

    #[inline(always)]
    unsafe fn outside_32(lanes: *const u32, bounds: Bounds) -> u32 {
        // SAFETY: `lanes` points to the lanes of a register.
        let offset = |lane| unsafe { lanes.add(lane).read() }.wrapping_add(bounds.add as u32);
        let outside = |lane| is_outside(u64::from(offset(lane)), bounds);
        (0..LANES).fold(0, |mask, lane| mask | u32::from(outside(lane)) << lane)
    }

    #[inline(always)]
    unsafe fn outside_64(lanes: *const u64, bounds: Bounds) -> u32 {
        // SAFETY: `lanes` points to the lanes of a register.
        let offset = |lane| unsafe { lanes.add(lane).read() }.wrapping_add(bounds.add);
        let outside = |lane| is_outside(offset(lane), bounds);
        (0..LANES).fold(0, |mask, lane| mask | u32::from(outside(lane)) << lane)
    }

    #[inline(always)]
    unsafe fn copy_64(dst: *mut u8, src: *const u8) {
        // SAFETY: both pointers are valid for 64 bytes.
        unsafe { access::copy_64(dst, src) };
    }

    #[inline(always)]
    unsafe fn bits(bytes: &[u8; LANES]) -> u32 {
        bytes.iter().rev().fold(0, |bits, byte| bits << 1 | u32::from(byte >> 7))
    }

    #[inline(always)]
    unsafe fn blend_32(d: *mut u32, values: &[u32; HALF], lanes: u16) {
        // SAFETY: `d` points to the lanes of half a register.
        lanes_of(lanes.into()).for_each(|lane| unsafe { d.add(lane).write(values[lane]) });
    }

    #[inline(always)]
    unsafe fn blend_64(d: *mut u64, values: &[u64; HALF], lanes: u16) {
        // SAFETY: `d` points to the lanes of half a register.
        lanes_of(lanes.into()).for_each(|lane| unsafe { d.add(lane).write(values[lane]) });
    }
}

fn is_outside(offset: u64, bounds: Bounds) -> bool {
    offset > bounds.limit || offset & bounds.align != 0
}
