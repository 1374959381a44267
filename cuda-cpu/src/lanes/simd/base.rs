//! The functions for processors without further vector instructions.

use super::{Bounds, HALF, Pattern, Simd};
use crate::lanes::{LANES, lanes_of};
use crate::memory::access;

/// [`Level::Base`](super::Level).
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
