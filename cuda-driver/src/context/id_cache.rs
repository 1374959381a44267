//! A cache in front of a locked table, for the look-ups of every launch: it takes no lock.
//!
//! # Rules
//! Each slot is a sequence lock. `version` is odd while a writer owns the slot; a writer becomes the owner by a
//! compare-and-swap. A reader takes the words between two reads of the same even version. Ids are never reused, so a
//! value that was read with its key belongs to it. A miss costs time only: the caller then asks the table.

use cuda_core::internals::sync::{
    atomic::{AtomicU64, Ordering, fence},
    limit, spin_loop,
};

/// The number of slots. Ids count up, so ids that were made one after the other have different slots.
const SLOTS: usize = limit(1024, 1);

/// An id. Zeros name nothing.
pub(crate) type Key = [u64; 2];

/// The value of an id.
pub(crate) type Value = [u64; 2];

pub(crate) struct IdCache(Box<[CacheSlot]>);

#[derive(Default)]
struct CacheSlot {
    version: AtomicU64,
    words: [AtomicU64; 4],
}

impl Default for IdCache {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| CacheSlot::default()).collect())
    }
}

impl IdCache {
    /// The value of a key, if it is cached.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<Value> {
        let slot = self.slot(key);
        let version = slot.version.load(Ordering::Acquire);
        let [a, b, c, d] = &slot.words;
        let [a, b, c, d] = [a, b, c, d].map(|word| word.load(Ordering::Relaxed));
        // Orders the reads above before the one below.
        fence(Ordering::Acquire);
        let unchanged =
            version.is_multiple_of(2) && slot.version.load(Ordering::Relaxed) == version;
        (unchanged && [a, b] == key).then_some([c, d])
    }

    /// Inserts a value, and evicts another one from the same slot. Does nothing while another thread changes the slot.
    pub(crate) fn insert(&self, key: Key, value: Value) {
        let [a, b] = key;
        let [c, d] = value;
        self.slot(key).write(|_| Some([a, b, c, d]));
    }

    /// Evicts a key. When this returns, no thread finds it any more.
    pub(crate) fn evict(&self, key: Key) {
        let slot = self.slot(key);
        while !slot.write(|words| (words[..2] == key).then_some([0; 4])) {
            spin_loop();
        }
    }

    #[inline]
    fn slot(&self, [a, b]: Key) -> &CacheSlot {
        &self.0[(a.wrapping_add(b.wrapping_mul(7)) as usize) % SLOTS]
    }
}

impl CacheSlot {
    /// Changes the words, and returns `true`, unless another thread owns the slot.
    fn write(&self, change: impl FnOnce([u64; 4]) -> Option<[u64; 4]>) -> bool {
        let version = self.version.load(Ordering::Relaxed);
        let busy = !version.is_multiple_of(2);
        let odd = version.wrapping_add(1);
        let swap =
            || self.version.compare_exchange(version, odd, Ordering::Acquire, Ordering::Relaxed);
        if busy || swap().is_err() {
            return false;
        }
        // Orders the odd version before the words, for readers that see one of these.
        fence(Ordering::Release);
        let [a, b, c, d] = &self.words;
        let now = [a, b, c, d].map(|word| word.load(Ordering::Relaxed));
        if let Some(words) = change(now) {
            self.words.iter().zip(words).for_each(|(word, new)| word.store(new, Ordering::Relaxed));
        }
        self.version.store(version.wrapping_add(2), Ordering::Release);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn key_is_found_until_it_is_evicted_or_replaced() {
        let cache = IdCache::default();
        assert_eq!(cache.get([5, 1]), None);
        cache.insert([5, 1], [50, 51]);
        assert_eq!(cache.get([5, 1]), Some([50, 51]));
        assert_eq!(cache.get([5, 2]), None);
        cache.insert([5 + SLOTS as u64, 1], [60, 61]);
        assert_eq!(cache.get([5, 1]), None);
        cache.evict([5, 1]);
        assert_eq!(cache.get([5 + SLOTS as u64, 1]), Some([60, 61]));
        cache.evict([5 + SLOTS as u64, 1]);
        assert_eq!(cache.get([5 + SLOTS as u64, 1]), None);
    }

    /// Threads that insert and evict keys of one slot never show the value of another key.
    #[test]
    fn concurrent_lookup_returns_no_value_of_another_key() {
        let (cache, stop) = (IdCache::default(), AtomicBool::new(false));
        let keys = [1, 1 + SLOTS as u64, 1 + 2 * SLOTS as u64];
        std::thread::scope(|scope| {
            for key in keys {
                let (cache, stop) = (&cache, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        cache.insert([key, 0], [key * 3, key * 5]);
                        cache.evict([key, 0]);
                        assert_eq!(cache.get([key, 0]), None);
                    }
                });
            }
            for _ in 0..200_000 {
                for key in keys {
                    if let Some(value) = cache.get([key, 0]) {
                        assert_eq!(value, [key * 3, key * 5]);
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
