//! Counts heap allocations exactly.
//!
//! A benchmark enables it with `#[global_allocator] static HEAP: Counting = Counting;`. It counts the allocations of
//! all threads while [`allocations`] runs. At other times it costs one load of a cache line that no thread writes.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::{Effort, Way, medians};

/// Repetitions of a measured operation. One execution takes less than the clock's resolution.
const TIMES: usize = 1000;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator with a counter.
pub struct Counting;

/// Prints the cost of `run`: nanoseconds, and heap allocations of all threads.
pub fn cost(what: &str, how: &'static str, run: impl Fn()) {
    let many = || (0..TIMES).for_each(|_| run());
    let micros = medians(&mut [Way::new(how, many)], Effort { rounds: 10, in_a_row: 2 });
    let nanos = micros.iter().sum::<f64>() * 1e3 / TIMES as f64;
    let blocks = allocations(many) as f64 / TIMES as f64;
    println!("| {what} | {how} | {nanos:.1} | {blocks} |");
}

/// Counts the blocks that all threads allocate or reallocate while `run` runs. Calls must not overlap.
pub fn allocations(run: impl FnOnce()) -> u64 {
    ALLOCATIONS.store(0, Ordering::SeqCst);
    COUNTS.store(true, Ordering::SeqCst);
    run();
    COUNTS.store(false, Ordering::SeqCst);
    ALLOCATIONS.load(Ordering::SeqCst)
}

fn count() {
    if COUNTS.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed to the system's allocator; the counter accesses only two atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of the system's allocator, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of the system's allocator, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of the system's allocator, which is the same.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of the system's allocator, which is the same.
        unsafe { System.dealloc(block, layout) }
    }
}
