//! The functions that access device bytes. No other code does; see the rules in the parent module, also for races.
//! Atomic accesses of 16 bytes use the instruction `cmpxchg16b`.
//!
//! All functions are `unsafe` for the same reason: the caller must have checked that the bytes are in a live
//! allocation, or in memory that it owns exclusively, and that scalar accesses are aligned.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A scalar that fits one atomic access.
pub(crate) trait Word: Copy {
    /// # Safety
    /// `at` is valid and aligned for this type.
    unsafe fn load(at: *mut u8) -> Self;
    /// # Safety
    /// `at` is valid and aligned for this type.
    unsafe fn store(at: *mut u8, value: Self);
    /// Replaces the value by the result of `f`. Returns the old value.
    /// # Safety
    /// `at` is valid and aligned for this type.
    unsafe fn update(at: *mut u8, f: impl FnMut(Self) -> Self) -> Self;
    /// Adds with wrapping. Returns the old value.
    /// # Safety
    /// `at` is valid and aligned for this type.
    unsafe fn add(at: *mut u8, value: Self) -> Self;
    /// Replaces the value by `new` if it is `old`. Returns the old value.
    /// # Safety
    /// `at` is valid and aligned for this type.
    unsafe fn exchange_if(at: *mut u8, old: Self, new: Self) -> Self;
}

macro_rules! word {
    ($($ty:ty, $atomic:ty;)*) => { $(
        impl Word for $ty {
            #[inline(always)]
            unsafe fn load(at: *mut u8) -> Self {
                // SAFETY: `at` is valid and aligned for this type.
                unsafe { <$atomic>::from_ptr(at.cast()) }.load(Ordering::Relaxed)
            }
            #[inline(always)]
            unsafe fn store(at: *mut u8, value: Self) {
                // SAFETY: `at` is valid and aligned for this type.
                unsafe { <$atomic>::from_ptr(at.cast()) }.store(value, Ordering::Relaxed);
            }
            #[inline(always)]
            unsafe fn update(at: *mut u8, mut f: impl FnMut(Self) -> Self) -> Self {
                // SAFETY: `at` is valid and aligned for this type.
                let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
                let mut old = cell.load(Ordering::Relaxed);
                loop {
                    let new = f(old);
                    match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
                        Ok(_) => return old,
                        Err(now) => old = now,
                    }
                }
            }
            #[inline(always)]
            unsafe fn add(at: *mut u8, value: Self) -> Self {
                // SAFETY: `at` is valid and aligned for this type.
                unsafe { <$atomic>::from_ptr(at.cast()) }.fetch_add(value, Ordering::SeqCst)
            }
            #[inline(always)]
            unsafe fn exchange_if(at: *mut u8, old: Self, new: Self) -> Self {
                // SAFETY: `at` is valid and aligned for this type.
                let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
                match cell.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(was) | Err(was) => was,
                }
            }
        }
    )* };
}

word! { u8, AtomicU8; u16, AtomicU16; u32, AtomicU32; u64, AtomicU64; }

/// Copies `len` bytes; the ranges do not overlap.
///
/// # Safety
/// Both ranges are valid; at least one of them may race.
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both ranges are valid for `len` bytes and do not overlap. The direction flag is clear by the ABI.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") len => _, inout("rdi") dst => _,
            inout("rsi") src => _, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..len {
        // SAFETY: both ranges are valid for `len` bytes, and bytes are always aligned.
        unsafe { u8::store(dst.add(at), u8::load(src.cast_mut().add(at))) };
    }
}

/// Fills `count` elements of `size` (1, 2 or 4) bytes with the low bytes of `pattern`.
///
/// # Safety
/// The range is valid and aligned to `size`.
pub(crate) unsafe fn fill(dst: *mut u8, pattern: u32, size: usize, count: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the range is valid and aligned to `size`. The direction flag is clear by the ABI.
    unsafe {
        use std::arch::asm;
        match size {
            1 => asm!("rep stosb", inout("rcx") count => _, inout("rdi") dst => _,
                in("al") pattern as u8, options(nostack, preserves_flags)),
            2 => asm!("rep stosw", inout("rcx") count => _, inout("rdi") dst => _,
                in("ax") pattern as u16, options(nostack, preserves_flags)),
            _ => asm!("rep stosd", inout("rcx") count => _, inout("rdi") dst => _,
                in("eax") pattern, options(nostack, preserves_flags)),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..count {
        // SAFETY: the range is valid and aligned to `size`.
        unsafe {
            match size {
                1 => u8::store(dst.add(at), pattern as u8),
                2 => u16::store(dst.add(at * 2), pattern as u16),
                _ => u32::store(dst.add(at * 4), pattern),
            }
        }
    }
}

/// Copies 64 bytes: one 32-bit access of half a warp to consecutive addresses.
///
/// # Safety
/// Both ranges are valid; at least one of them may race.
#[inline(always)]
pub(crate) unsafe fn copy_64(dst: *mut u8, src: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both ranges are valid for 64 bytes. SSE is part of the x86-64 baseline.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{s}]", "movups {b}, [{s} + 16]",
            "movups {c}, [{s} + 32]", "movups {d}, [{s} + 48]",
            "movups [{t}], {a}", "movups [{t} + 16], {b}",
            "movups [{t} + 32], {c}", "movups [{t} + 48], {d}",
            s = in(reg) src, t = in(reg) dst,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: both ranges are valid for 64 bytes.
    unsafe {
        copy(dst, src, 64);
    }
}

/// Copies as [`copy_64`] does, for use in AVX code, where SSE instructions stall.
///
/// # Safety
/// As [`copy_64`], and the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn copy_64_avx(dst: *mut u8, src: *const u8) {
    // SAFETY: both ranges are valid for 64 bytes, and the processor has AVX.
    unsafe {
        std::arch::asm!(
            "vmovups {a}, [{s}]", "vmovups {b}, [{s} + 32]",
            "vmovups [{t}], {a}", "vmovups [{t} + 32], {b}",
            s = in(reg) src, t = in(reg) dst,
            a = out(ymm_reg) _, b = out(ymm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies as [`copy_64`] does, in one access.
///
/// # Safety
/// As [`copy_64`], and the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn copy_64_avx512(dst: *mut u8, src: *const u8) {
    // SAFETY: both ranges are valid for 64 bytes, and the processor has AVX-512.
    unsafe {
        std::arch::asm!(
            "vmovups {a}, [{s}]", "vmovups [{t}], {a}",
            s = in(reg) src, t = in(reg) dst, a = out(zmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies 16 bytes.
///
/// # Safety
/// Both ranges are valid; at least one of them may race.
#[inline(always)]
pub(crate) unsafe fn copy_16(dst: *mut u8, src: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both ranges are valid for 16 bytes. Uses two general registers, because SSE instructions stall in AVX
    // code.
    unsafe {
        std::arch::asm!(
            "mov {a}, [{s}]", "mov {b}, [{s} + 8]", "mov [{t}], {a}", "mov [{t} + 8], {b}",
            s = in(reg) src, t = in(reg) dst, a = out(reg) _, b = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: both ranges are valid for 16 bytes.
    unsafe {
        copy(dst, src, 16);
    }
}

/// Whether this processor has `cmpxchg16b`, the instruction for atomic accesses of 16 bytes.
pub(crate) fn is_there() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("cmpxchg16b");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Replaces 16 bytes by the result of `f`, atomically. `f` may be called several times. Returns the old value.
///
/// # Safety
/// `at` is valid for 16 bytes and aligned for 8. If it is not aligned for 16, this thread has exclusive access. The
/// processor has the instruction.
pub(crate) unsafe fn update(at: *mut u8, f: impl Fn(u128) -> u128) -> u128 {
    #[cfg(target_arch = "x86_64")]
    if at.addr().is_multiple_of(16) {
        // An exchange of 0 by 0 reads 16 bytes atomically and does not change them.
        // SAFETY: `at` is valid and aligned for 16 bytes, and the processor has the instruction.
        let mut old = unsafe { exchange_if(at, 0, 0) };
        loop {
            // SAFETY: `at` is valid and aligned for 16 bytes, and the processor has the instruction.
            match unsafe { exchange_if(at, old, f(old)) } {
                was if was == old => return old,
                was => old = was,
            }
        }
    }
    // SAFETY: `at` is valid for 16 bytes and aligned for 8, and this thread has exclusive access.
    unsafe {
        let high = at.add(8);
        let old = u128::from(u64::load(at)) | u128::from(u64::load(high)) << 64;
        let new = f(old);
        u64::store(at, new as u64);
        u64::store(high, (new >> 64) as u64);
        old
    }
}

/// Replaces 16 bytes by `new` if they are `old`. Returns the old bytes. Uses inline assembly, because LLVM inlines the
/// intrinsic into functions without the processor feature and then calls a library function.
///
/// # Safety
/// `at` is valid and aligned for 16 bytes, and the processor has the instruction.
#[cfg(target_arch = "x86_64")]
unsafe fn exchange_if(at: *mut u8, old: u128, new: u128) -> u128 {
    let (mut low, mut high) = (old as u64, (old >> 64) as u64);
    // SAFETY: `at` is valid and aligned for 16 bytes, and the processor has the instruction. It takes one half in
    // `rbx`, which is restored.
    unsafe {
        std::arch::asm!(
            "xchg rbx, rsi", "lock cmpxchg16b [rdi]", "mov rbx, rsi",
            in("rdi") at, inout("rsi") new as u64 => _, in("rcx") (new >> 64) as u64,
            inout("rax") low, inout("rdx") high, options(nostack),
        );
    }
    u128::from(low) | u128::from(high) << 64
}
