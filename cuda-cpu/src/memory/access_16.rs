//! Atomic accesses of 16 bytes, for which processors have one instruction.

use super::access::Word;

/// Whether this processor has it.
pub(crate) fn is_there() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("cmpxchg16b");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Replaces what is there by `f` of it, given it may be called again; returns what was there.
///
/// # Safety
/// `at` is valid for 16 bytes and aligned for 8, and what is not aligned for 16 belongs to this thread. The processor
/// has the instruction.
pub(crate) unsafe fn update(at: *mut u8, f: impl Fn(u128) -> u128) -> u128 {
    #[cfg(target_arch = "x86_64")]
    if at.addr().is_multiple_of(16) {
        // What stands there replaces itself: that is how 16 bytes are read at once.
        // SAFETY: the caller's promise.
        let mut old = unsafe { exchange_if(at, 0, 0) };
        loop {
            // SAFETY: the caller's promise.
            match unsafe { exchange_if(at, old, f(old)) } {
                was if was == old => return old,
                was => old = was,
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        let high = at.add(8);
        let old = u128::from(u64::load(at)) | u128::from(u64::load(high)) << 64;
        let new = f(old);
        u64::store(at, new as u64);
        u64::store(high, (new >> 64) as u64);
        old
    }
}

/// By hand: LLVM inlines the intrinsic where the processor's feature is not known, and then calls a library's function.
///
/// # Safety
/// `at` is valid and aligned for 16 bytes, and the processor has the instruction.
#[cfg(target_arch = "x86_64")]
unsafe fn exchange_if(at: *mut u8, old: u128, new: u128) -> u128 {
    let (mut low, mut high) = (old as u64, (old >> 64) as u64);
    // SAFETY: the caller's promise. The instruction wants a half in `rbx`, which is given back.
    unsafe {
        std::arch::asm!(
            "xchg rbx, rsi", "lock cmpxchg16b [rdi]", "mov rbx, rsi",
            in("rdi") at, inout("rsi") new as u64 => _, in("rcx") (new >> 64) as u64,
            inout("rax") low, inout("rdx") high, options(nostack),
        );
    }
    u128::from(low) | u128::from(high) << 64
}
