//! Atomic accesses of 16 bytes, by the instruction `cmpxchg16b`.

use super::access::Word;

/// Whether this processor has the instruction.
pub(crate) fn is_there() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("cmpxchg16b");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Replaces the value by the result of `f`, which may be called several times. Returns the old value.
///
/// # Safety
/// `at` is valid for 16 bytes and aligned for 8. If it is not aligned for 16, this thread has exclusive access. The processor
/// has the instruction.
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

/// Replaces the value by `new` if it is `old`. Returns the old value. Uses inline assembly, because LLVM inlines the
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
