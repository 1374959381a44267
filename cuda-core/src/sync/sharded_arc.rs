//! `ShardedArc`: an `Arc` that many threads can clone and drop at the same time without slowing each other down.
//!
//! An `Arc` has one count, and threads that clone it at the same time wait for its cache line. A kernel's handle is
//! cloned for every launch, by every thread that launches. A `ShardedArc` has a count in each shard. A clone is counted
//! in the shard of the thread that made it. While the home shard counts a handle, clones and drops change one shard.
//!
//! # Rules
//! 1. A handle is counted in one shard for its whole life. The shard of the first handle is the home shard.
//! 2. A shard is *lazy* or *exact*. Lowering the count of a lazy shard to 0 has no further effect. The field `exact`
//!    counts the exact shards whose count is not 0: a thread that raises a count from 0, or lowers it to 0, updates it.
//! 3. The home shard is exact from the beginning. The thread that lowers its count to 0 for the first time makes all
//!    other shards exact, and only then lowers `exact`. So the allocation exists at least until then.
//! 4. A clone that raises the count of an exact shard from 0 raises `exact` before it returns. A drop lowers the count
//!    first and `exact` afterwards. So once all shards are exact, `exact` is at least 1 while a handle exists: either
//!    `exact` counts the handle's shard, or a clone into that shard has not returned yet. In the second case the handle
//!    that is being cloned exists, is older, and the same holds for it.
//! 5. The thread that lowers `exact` to 0 frees the value. No handle exists then, so none can be cloned.
//! 6. As in `Arc`, lowering a count releases, and the thread that reaches 0 acquires. So every use of the value happens
//!    before the drop of the value.
//!
//! # Shards
//! Shards are copies of a counter, each in a cache line of its own, so that threads which count at the same time do not
//! wait for each other's cache line. Every thread has one shard. On a machine with two cores, an increment takes 7 to 9
//! ns in a cache line of the thread's own. With two threads in the same line, each increment takes about 45 ns.

use std::{cell::Cell, ops::Deref, ptr::NonNull};

use crossbeam_utils::CachePadded;

use crate::sync::{
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    limit,
};

/// Shared ownership of a value, counted separately for each shard.
///
/// For values that many threads clone all the time. Each value takes about 2 KiB more than in an `Arc`, and there are
/// no weak handles. The last handle drops the value, on the thread that drops that handle.
pub struct ShardedArc<T>(NonNull<Shard<T>>);

/// The handles that are counted in one shard.
struct Shard<T> {
    /// [`HANDLE`] for each handle, and [`EXACT`] if the shard is exact. Forgotten handles cannot overflow 64 bits.
    count: AtomicU64,
    index: usize,
    /// The allocation that this shard is part of.
    owner: NonNull<Shared<T>>,
}

const EXACT: u64 = 1;
const HANDLE: u64 = 2;

struct Shared<T> {
    value: T,
    shards: Sharded<Shard<T>>,
    /// The number of exact shards whose count is not 0.
    exact: AtomicUsize,
    /// Whether a thread makes all shards exact, or has done so.
    all_exact: AtomicBool,
}

// SAFETY: handles on several threads share the value, which needs `Sync`, and the last one drops it on its thread,
// which needs `Send`. The same bounds hold for `Arc`.
unsafe impl<T: Send + Sync> Send for ShardedArc<T> {}
// SAFETY: a shared handle can be cloned on another thread, so the bounds are those of `Send`.
unsafe impl<T: Send + Sync> Sync for ShardedArc<T> {}

impl<T> ShardedArc<T> {
    /// Moves the value to the heap, together with its counts, which take about 2 KiB.
    pub fn new(value: T) -> Self {
        Self::new_in(own_shard(), value)
    }

    /// As [`new`](Self::new), with the given home shard.
    pub(crate) fn new_in(home: usize, value: T) -> Self {
        let owner = NonNull::from(Box::leak(Box::<Shared<T>>::new_uninit())).cast::<Shared<T>>();
        let shards = std::array::from_fn(|index| {
            let count = if index == home { EXACT + HANDLE } else { 0 };
            Shard { count: AtomicU64::new(count), index, owner }.into()
        });
        let (exact, all_exact) = (AtomicUsize::new(1), AtomicBool::new(false));
        // SAFETY: the memory was just allocated for this type.
        unsafe { owner.write(Shared { value, shards, exact, all_exact }) };
        // SAFETY: it was just written.
        Self(unsafe { owner.as_ref() }.shard(home))
    }

    #[inline]
    fn shared(&self) -> &Shared<T> {
        // SAFETY: this handle exists, so the allocation does (rules 3 to 5).
        unsafe { self.0.as_ref().owner.as_ref() }
    }

    /// Clones the handle, counted in the given shard.
    #[inline]
    pub(crate) fn clone_in(&self, shard: usize) -> Self {
        // SAFETY: this handle exists, so its shard does.
        let own = unsafe { self.0.as_ref() };
        // The handle that is cloned keeps the value, so nothing has to be acquired.
        if own.index == shard {
            own.count.fetch_add(HANDLE, Ordering::Relaxed);
            return Self(self.0);
        }
        self.clone_into_other(shard)
    }

    fn clone_into_other(&self, shard: usize) -> Self {
        let shared = self.shared();
        let shard = shared.shard(shard);
        // SAFETY: it is a part of the allocation, which exists.
        let count = unsafe { &shard.as_ref().count };
        // Acquires and releases: a clone that finds the count above 0 relies on the clone that raised it from 0 (rule
        // 4), so it comes after that one.
        if count.fetch_add(HANDLE, Ordering::AcqRel) == EXACT {
            shared.exact.fetch_add(1, Ordering::Relaxed);
        }
        Self(shard)
    }
}

impl<T> Shared<T> {
    #[inline]
    fn shard(&self, index: usize) -> NonNull<Shard<T>> {
        NonNull::from(&*self.shards[index])
    }

    /// Makes all shards exact that are lazy. Called while `exact` counts the home shard.
    fn make_all_exact(&self) {
        // Counts all other shards first, then takes out those without a handle.
        self.exact.fetch_add(SHARDS - 1, Ordering::Relaxed);
        for shard in &self.shards {
            // Acquires what a lazy drop has released.
            if shard.count.fetch_or(EXACT, Ordering::AcqRel) == 0 {
                self.exact.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl<T> Clone for ShardedArc<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.clone_in(own_shard())
    }
}

impl<T> Drop for ShardedArc<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle exists until the count is lowered.
        let Shard { count, owner, .. } = unsafe { self.0.as_ref() };
        let owner = *owner;
        if count.fetch_sub(HANDLE, Ordering::Release) == EXACT + HANDLE {
            // SAFETY: `exact` counts this shard until `leave` lowers it.
            unsafe { leave(owner, self.0) };
        }
    }
}

/// Takes an exact shard without handles out of `exact`, and frees the value if it was the last one.
///
/// # Safety
/// The caller has lowered the count of `shard`, an exact shard of `owner`, to 0, and calls this once.
#[cold]
unsafe fn leave<T>(owner: NonNull<Shared<T>>, shard: NonNull<Shard<T>>) {
    // SAFETY: `exact` still counts this shard, so the allocation exists.
    let (shared, shard) = unsafe { (owner.as_ref(), shard.as_ref()) };
    // A load and not a fence, as in `Arc`: ThreadSanitizer does not know fences.
    shard.count.load(Ordering::Acquire);
    // Before that, the home shard is the only exact one.
    if !shared.all_exact.swap(true, Ordering::AcqRel) {
        shared.make_all_exact();
    }
    if shared.exact.fetch_sub(1, Ordering::Release) == 1 {
        shared.exact.load(Ordering::Acquire);
        // SAFETY: the memory came from a box of this type, and no handle exists any more (rule 5).
        drop(unsafe { Box::from_raw(owner.as_ptr()) });
    }
}

impl<T> Deref for ShardedArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.shared().value
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for ShardedArc<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        T::fmt(self, f)
    }
}

/// The number of shards. If there are more threads, several share a shard.
pub const SHARDS: usize = limit(16, 2);

/// A value for each shard.
pub type Sharded<T> = [CachePadded<T>; SHARDS];

/// Returns the index of the calling thread's shard, below [`SHARDS`]. It stays the same while the thread runs.
/// Only speed depends on it: threads may share a shard, and a value may be counted in any.
#[inline]
pub fn own_shard() -> usize {
    /// The value for a thread that has no shard yet.
    const NONE: usize = usize::MAX;
    thread_local!(static OWN: Cell<usize> = const { Cell::new(NONE) });

    // The variable has no destructor, so it exists until the thread has ended.
    let known = OWN.try_with(Cell::get).unwrap_or(0);
    if known != NONE {
        return known;
    }
    let shard = next_shard();
    _ = OWN.try_with(|own| own.set(shard));
    shard
}

#[cold]
fn next_shard() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    /// More threads than shards.
    #[test]
    fn value_is_dropped_with_the_last_handle_of_many_threads() {
        let value = Arc::new(());
        let first = ShardedArc::new(value.clone());
        let threads: Vec<_> = (0..2 * SHARDS)
            .map(|_| first.clone())
            .map(|handle| thread::spawn(move || (0..1000).fold(handle, |handle, _| handle.clone())))
            .collect();
        drop(first);
        let handles: Vec<_> = threads.into_iter().map(thread::JoinHandle::join).collect();
        assert_eq!(Arc::strong_count(&value), 2);
        drop(handles);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

#[cfg(all(test, not(loom)))]
mod shard_tests {
    use super::*;

    #[test]
    fn threads_are_spread_over_the_shards() {
        let own = own_shard();
        assert_eq!(own, own_shard());
        let others: Vec<_> = (0..2 * SHARDS)
            .map(|_| std::thread::spawn(own_shard).join().unwrap_or(SHARDS))
            .collect();
        assert!(others.iter().all(|shard| *shard < SHARDS));
        assert!(others.iter().any(|shard| *shard != own));
    }
}
