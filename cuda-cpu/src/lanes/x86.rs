//! The functions for AVX2 and AVX-512.
#![cfg_attr(any(test, one_level), allow(dead_code, unused_imports))]

use std::arch::x86_64::*;

use super::LANES;
use super::simd::{Bounds, HALF, Pattern, Simd};
use crate::memory::access;

/// The functions of [`Level::Avx2`](super::simd::Level::Avx2).
pub(crate) struct Avx2;

impl Simd for Avx2 {
    #[inline(always)]
    unsafe fn pattern_32<const STEP: u64>(lanes: *const u32) -> Pattern {
        // SAFETY: `lanes` points to the lanes of a register, and the processor supports the level.
        unsafe {
            let s = STEP as i32;
            let low = _mm256_setr_epi32(0, s, 2 * s, 3 * s, 4 * s, 5 * s, 6 * s, 7 * s);
            let high = _mm256_add_epi32(low, _mm256_set1_epi32(8 * s));
            let (mut apart, mut differ) = (_mm256_setzero_si256(), _mm256_setzero_si256());
            for half in [0, HALF] {
                let first = _mm256_set1_epi32(lanes.add(half).read() as i32);
                for (at, step) in [(half, low), (half + 8, high)] {
                    let x = _mm256_loadu_si256(lanes.add(at).cast());
                    let d = _mm256_sub_epi32(x, first);
                    differ = _mm256_or_si256(differ, d);
                    apart = _mm256_or_si256(apart, _mm256_xor_si256(d, step));
                }
            }
            Pattern::new(
                _mm256_testz_si256(apart, apart) != 0,
                _mm256_testz_si256(differ, differ) != 0,
            )
        }
    }

    #[inline(always)]
    unsafe fn pattern_64<const STEP: u64>(lanes: *const u64) -> Pattern {
        // SAFETY: `lanes` points to the lanes of a register, and the processor supports the level.
        unsafe {
            let s = STEP as i64;
            let step = _mm256_setr_epi64x(0, s, 2 * s, 3 * s);
            let next = _mm256_set1_epi64x(4 * s);
            let (mut apart, mut differ) = (_mm256_setzero_si256(), _mm256_setzero_si256());
            for half in [0, HALF] {
                let first = _mm256_set1_epi64x(lanes.add(half).read() as i64);
                let mut step = step;
                for at in (half..half + HALF).step_by(4) {
                    let x = _mm256_loadu_si256(lanes.add(at).cast());
                    let d = _mm256_sub_epi64(x, first);
                    differ = _mm256_or_si256(differ, d);
                    apart = _mm256_or_si256(apart, _mm256_xor_si256(d, step));
                    step = _mm256_add_epi64(step, next);
                }
            }
            Pattern::new(
                _mm256_testz_si256(apart, apart) != 0,
                _mm256_testz_si256(differ, differ) != 0,
            )
        }
    }

    #[inline(always)]
    unsafe fn outside_32(lanes: *const u32, bounds: Bounds) -> u32 {
        // SAFETY: `lanes` points to the lanes of a register, and the processor supports the level.
        unsafe {
            let add = _mm256_set1_epi32(bounds.add as i32);
            let limit = _mm256_set1_epi32(bounds.limit as i32);
            let align = _mm256_set1_epi32(bounds.align as i32);
            let zero = _mm256_setzero_si256();
            let mut mask = 0;
            for i in 0..4 {
                let x = _mm256_loadu_si256(lanes.add(8 * i).cast());
                let offset = _mm256_add_epi32(x, add);
                // The sign bit is set if the offset, or the remaining size behind it, is negative.
                let beyond = _mm256_or_si256(offset, _mm256_sub_epi32(limit, offset));
                let even = _mm256_cmpeq_epi32(_mm256_and_si256(offset, align), zero);
                let beyond = _mm256_movemask_ps(_mm256_castsi256_ps(beyond)) as u32;
                let even = _mm256_movemask_ps(_mm256_castsi256_ps(even)) as u32;
                mask |= (beyond | (even ^ 0xFF)) << (8 * i);
            }
            mask
        }
    }

    #[inline(always)]
    unsafe fn outside_64(lanes: *const u64, bounds: Bounds) -> u32 {
        // SAFETY: `lanes` points to the lanes of a register, and the processor supports the level.
        unsafe {
            let add = _mm256_set1_epi64x(bounds.add as i64);
            let limit = _mm256_set1_epi64x(bounds.limit as i64);
            let align = _mm256_set1_epi64x(bounds.align as i64);
            let zero = _mm256_setzero_si256();
            let mut mask = 0;
            for i in 0..8 {
                let x = _mm256_loadu_si256(lanes.add(4 * i).cast());
                let offset = _mm256_add_epi64(x, add);
                let beyond = _mm256_or_si256(offset, _mm256_sub_epi64(limit, offset));
                let even = _mm256_cmpeq_epi64(_mm256_and_si256(offset, align), zero);
                let beyond = _mm256_movemask_pd(_mm256_castsi256_pd(beyond)) as u32;
                let even = _mm256_movemask_pd(_mm256_castsi256_pd(even)) as u32;
                mask |= (beyond | (even ^ 0xF)) << (4 * i);
            }
            mask
        }
    }

    #[inline(always)]
    unsafe fn copy_64(dst: *mut u8, src: *const u8) {
        // SAFETY: both pointers are valid for 64 bytes, and the processor supports the level.
        unsafe { access::copy_64_avx(dst, src) };
    }

    #[inline(always)]
    unsafe fn bits(bytes: &[u8; LANES]) -> u32 {
        // SAFETY: the processor supports the level.
        unsafe { _mm256_movemask_epi8(_mm256_loadu_si256(bytes.as_ptr().cast())) as u32 }
    }

    #[inline(always)]
    unsafe fn blend_32(d: *mut u32, values: &[u32; HALF], lanes: u16) {
        // SAFETY: `d` points to the lanes of half a register, and the processor supports the level.
        unsafe {
            let bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            for at in (0..HALF).step_by(8) {
                let part = _mm256_and_si256(_mm256_set1_epi32((lanes >> at).into()), bit);
                let here = _mm256_cmpeq_epi32(part, bit);
                let new = _mm256_loadu_si256(values.as_ptr().add(at).cast());
                _mm256_maskstore_epi32(d.add(at).cast(), here, new);
            }
        }
    }

    #[inline(always)]
    unsafe fn blend_64(d: *mut u64, values: &[u64; HALF], lanes: u16) {
        // SAFETY: `d` points to the lanes of half a register, and the processor supports the level.
        unsafe {
            let bit = _mm256_setr_epi64x(1, 2, 4, 8);
            for at in (0..HALF).step_by(4) {
                let part = _mm256_and_si256(_mm256_set1_epi64x((lanes >> at).into()), bit);
                let here = _mm256_cmpeq_epi64(part, bit);
                let new = _mm256_loadu_si256(values.as_ptr().add(at).cast());
                _mm256_maskstore_epi64(d.add(at).cast(), here, new);
            }
        }
    }
}

/// The functions of [`Level::Avx512`](super::simd::Level::Avx512).
pub(crate) struct Avx512;

impl Simd for Avx512 {
    #[inline(always)]
    unsafe fn pattern_32<const STEP: u64>(lanes: *const u32) -> Pattern {
        // SAFETY: `lanes` points to the lanes of a register, and the processor supports the level.
        unsafe {
            let s = STEP as i32;
            let count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let step = _mm512_mullo_epi32(count, _mm512_set1_epi32(s));
            let half = |at: usize| {
                let first = _mm512_set1_epi32(lanes.add(at).read() as i32);
                _mm512_sub_epi32(_mm512_loadu_si512(lanes.add(at).cast()), first)
            };
            let (low, high) = (half(0), half(HALF));
            let differ = _mm512_or_si512(low, high);
            let apart = _mm512_or_si512(_mm512_xor_si512(low, step), _mm512_xor_si512(high, step));
            Pattern::new(
                _mm512_test_epi32_mask(apart, apart) == 0,
                _mm512_test_epi32_mask(differ, differ) == 0,
            )
        }
    }

    #[inline(always)]
    unsafe fn pattern_64<const STEP: u64>(lanes: *const u64) -> Pattern {
        // SAFETY: `lanes` points to the lanes of a register, and the processor supports the level.
        unsafe {
            let s = STEP as i64;
            let low = _mm512_setr_epi64(0, s, 2 * s, 3 * s, 4 * s, 5 * s, 6 * s, 7 * s);
            let high = _mm512_add_epi64(low, _mm512_set1_epi64(8 * s));
            let (mut apart, mut differ) = (_mm512_setzero_si512(), _mm512_setzero_si512());
            for half in [0, HALF] {
                let first = _mm512_set1_epi64(lanes.add(half).read() as i64);
                for (at, step) in [(half, low), (half + 8, high)] {
                    let x = _mm512_loadu_si512(lanes.add(at).cast());
                    let d = _mm512_sub_epi64(x, first);
                    differ = _mm512_or_si512(differ, d);
                    apart = _mm512_or_si512(apart, _mm512_xor_si512(d, step));
                }
            }
            Pattern::new(
                _mm512_test_epi64_mask(apart, apart) == 0,
                _mm512_test_epi64_mask(differ, differ) == 0,
            )
        }
    }

    #[inline(always)]
    unsafe fn outside_32(lanes: *const u32, bounds: Bounds) -> u32 {
        // SAFETY: `lanes` points to the lanes of a register, and the processor supports the level.
        unsafe {
            let add = _mm512_set1_epi32(bounds.add as i32);
            let limit = _mm512_set1_epi32(bounds.limit as i32);
            let align = _mm512_set1_epi32(bounds.align as i32);
            let half = |at: usize| {
                let offset = _mm512_add_epi32(_mm512_loadu_si512(lanes.add(at).cast()), add);
                let beyond = _mm512_cmpgt_epu32_mask(offset, limit);
                u32::from(beyond | _mm512_test_epi32_mask(offset, align))
            };
            half(0) | half(HALF) << HALF
        }
    }

    #[inline(always)]
    unsafe fn outside_64(lanes: *const u64, bounds: Bounds) -> u32 {
        // SAFETY: `lanes` points to the lanes of a register, and the processor supports the level.
        unsafe {
            let add = _mm512_set1_epi64(bounds.add as i64);
            let limit = _mm512_set1_epi64(bounds.limit as i64);
            let align = _mm512_set1_epi64(bounds.align as i64);
            let quarter = |at: usize| {
                let offset = _mm512_add_epi64(_mm512_loadu_si512(lanes.add(at).cast()), add);
                let beyond = _mm512_cmpgt_epu64_mask(offset, limit);
                u32::from(beyond | _mm512_test_epi64_mask(offset, align))
            };
            quarter(0) | quarter(8) << 8 | quarter(16) << 16 | quarter(24) << 24
        }
    }

    #[inline(always)]
    unsafe fn copy_64(dst: *mut u8, src: *const u8) {
        // SAFETY: both pointers are valid for 64 bytes, and the processor supports the level.
        unsafe { access::copy_64_avx512(dst, src) };
    }

    #[inline(always)]
    unsafe fn bits(bytes: &[u8; LANES]) -> u32 {
        // SAFETY: the processor supports the level.
        unsafe { _mm256_movepi8_mask(_mm256_loadu_si256(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    unsafe fn blend_32(d: *mut u32, values: &[u32; HALF], lanes: u16) {
        // SAFETY: `d` points to the lanes of half a register, and the processor supports the level.
        unsafe {
            let new = _mm512_loadu_si512(values.as_ptr().cast());
            _mm512_mask_storeu_epi32(d.cast(), lanes, new);
        }
    }

    #[inline(always)]
    unsafe fn blend_64(d: *mut u64, values: &[u64; HALF], lanes: u16) {
        // SAFETY: `d` points to the lanes of half a register, and the processor supports the level.
        unsafe {
            for at in [0, 8] {
                let new = _mm512_loadu_si512(values.as_ptr().add(at).cast());
                _mm512_mask_storeu_epi64(d.add(at).cast(), (lanes >> at) as u8, new);
            }
        }
    }
}
