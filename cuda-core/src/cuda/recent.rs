//! A small table in front of a locked map, for what every launch looks up: found without a lock.
//!
//! # Who may touch what, and when
//! Each slot is a sequence lock. `version` is odd while a writer has the slot; only one does, for it made the
//! version odd by a compare-and-swap. A reader takes the words between two equal, even looks at the version.
//! Keys are never used twice (ids are not), so a value that was read with its key belongs to it. What is not
//! found here is looked for in the map, so a lost slot costs time only.

use crate::sync::{
    atomic::{AtomicU64, Ordering, fence},
    limit, spin_loop,
};

/// Slots. Ids count up, so this many that are alive at once do not displace each other.
const SLOTS: usize = limit(1024, 1);

/// The name of something. Zeros name nothing.
pub(super) type Key = [u64; 2];

/// What is known of it.
pub(super) type Value = [u64; 2];

pub(super) struct Recent(Box<[Slot]>);

#[derive(Default)]
struct Slot {
    version: AtomicU64,
    words: [AtomicU64; 4],
}

impl Default for Recent {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| Slot::default()).collect())
    }
}

impl Recent {
    /// The value, if it is here.
    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<Value> {
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

    /// Puts a value here, in the place of another one. Nothing happens if somebody else is doing that.
    pub(super) fn put(&self, key: Key, value: Value) {
        let [a, b] = key;
        let [c, d] = value;
        self.slot(key).write(|_| Some([a, b, c, d]));
    }

    /// Forgets a value. When this returns nobody finds it any more.
    pub(super) fn forget(&self, key: Key) {
        let slot = self.slot(key);
        while !slot.write(|words| (words[..2] == key).then_some([0; 4])) {
            spin_loop();
        }
    }

    #[inline]
    fn slot(&self, [a, b]: Key) -> &Slot {
        &self.0[(a.wrapping_add(b.wrapping_mul(7)) as usize) % SLOTS]
    }
}

impl Slot {
    /// Changes the words, unless another thread is at it: then `false`.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn finds_what_was_put_until_it_is_forgotten_or_displaced() {
        let recent = Recent::default();
        assert_eq!(recent.get([5, 1]), None);
        recent.put([5, 1], [50, 51]);
        assert_eq!(recent.get([5, 1]), Some([50, 51]));
        assert_eq!(recent.get([5, 2]), None);
        recent.put([5 + SLOTS as u64, 1], [60, 61]);
        assert_eq!(recent.get([5, 1]), None);
        recent.forget([5, 1]);
        assert_eq!(recent.get([5 + SLOTS as u64, 1]), Some([60, 61]));
        recent.forget([5 + SLOTS as u64, 1]);
        assert_eq!(recent.get([5 + SLOTS as u64, 1]), None);
    }

    /// Threads that write and forget keys of one slot never show another one's value.
    #[test]
    fn a_value_belongs_to_its_key() {
        let (recent, stop) = (Recent::default(), AtomicBool::new(false));
        let keys = [1, 1 + SLOTS as u64, 1 + 2 * SLOTS as u64];
        std::thread::scope(|scope| {
            for key in keys {
                let (recent, stop) = (&recent, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        recent.put([key, 0], [key * 3, key * 5]);
                        recent.forget([key, 0]);
                        assert_eq!(recent.get([key, 0]), None);
                    }
                });
            }
            for _ in 0..200_000 {
                for key in keys {
                    if let Some(value) = recent.get([key, 0]) {
                        assert_eq!(value, [key * 3, key * 5]);
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
