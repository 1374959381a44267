//! Counts heap allocations, exactly.
//!
//! A benchmark that wants it says `#[global_allocator] static HEAP: Counting = Counting;`. Every thread's
//! allocations count, but only while [`allocations`] runs: else it costs one load of a line that nobody writes.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::{Effort, Way, medians};

/// Times in a row that something is done whose cost is wanted: one takes less than the clock can tell.
const TIMES: usize = 1000;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counted.
pub struct Counting;

/// Prints what `run` takes, in nanoseconds and in allocations of all threads.
pub fn cost(what: &str, how: &'static str, run: impl Fn()) {
    let many = || (0..TIMES).for_each(|_| run());
    let micros = medians(&mut [Way::new(how, many)], Effort { rounds: 10, in_a_row: 2 });
    let nanos = micros.iter().sum::<f64>() * 1e3 / TIMES as f64;
    let blocks = allocations(many) as f64 / TIMES as f64;
    println!("| {what} | {how} | {nanos:.1} | {blocks} |");
}

/// How many blocks all threads together allocate or move while `run` runs. One call at a time.
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

// SAFETY: all of it is the system's allocator; counting touches no memory but two atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: what the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: what the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: what the caller promised.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: what the caller promised.
        unsafe { System.dealloc(block, layout) }
    }
}
