//! Advice to the system about large host memory.
//!
//! # Rules
//! The advice covers whole pages inside memory that the caller has borrowed. It changes neither contents nor addresses,
//! so it needs no further rule.

/// The size and the alignment of the advised range: a multiple of every page size.
#[cfg(target_os = "linux")]
const PAGE: usize = 2 << 20;

/// Asks the system to back memory with large pages: new memory then comes in some hundred times fewer steps. Does
/// nothing where the system does not offer this.
pub(super) fn advise<T>(memory: &mut [T]) {
    #[cfg(target_os = "linux")]
    {
        let range = memory.as_mut_ptr_range();
        let start = range.start.map_addr(|at| at.next_multiple_of(PAGE));
        let bytes = (range.end.addr() & !(PAGE - 1)).saturating_sub(start.addr());
        if bytes > 0 {
            // A failure only leaves small pages.
            // SAFETY: whole pages inside the borrowed memory; the advice does not change them.
            _ = unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}
