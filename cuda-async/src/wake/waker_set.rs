//! `WakerSet`: wakers under keys.
//!
//! # Rules
//! The owner keeps a set under its lock. Wakers are foreign code that may call the owner. So the owner clones a waker
//! before it takes the lock, and drops or wakes wakers after it releases the lock. Every method that removes wakers
//! returns them for that purpose.

use std::{collections::BTreeMap, task::Waker};

use cuda_core::wake_each;

#[derive(Debug)]
pub(crate) struct WakerSet<K>(BTreeMap<K, Waker>);

impl<K> Default for WakerSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> WakerSet<K> {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set has a waker for the same task.
    pub(crate) fn has_waker_like(&self, waker: &Waker) -> bool {
        self.0.values().any(|known| known.will_wake(waker))
    }

    /// Takes all wakers out.
    #[must_use = "wake them without the lock"]
    pub(crate) fn take_all(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Wakes all. A waker that panics does not affect the others. Call this without the lock.
    pub(crate) fn wake(self) {
        wake_each(self.0.into_values());
    }
}

impl<K: Ord> WakerSet<K> {
    /// Stores a waker and returns the one that it replaces.
    #[must_use = "drop it without the lock"]
    pub(crate) fn insert(&mut self, key: K, waker: Waker) -> Option<Waker> {
        self.0.insert(key, waker)
    }

    /// Removes a waker.
    #[must_use = "drop it without the lock"]
    pub(crate) fn remove(&mut self, key: &K) -> Option<Waker> {
        self.0.remove(key)
    }

    /// The smallest key.
    pub(crate) fn first(&self) -> Option<&K> {
        self.0.first_key_value().map(|(key, _)| key)
    }

    /// Takes out all wakers whose keys are smaller than `end`.
    #[must_use = "wake them without the lock"]
    pub(crate) fn take_before(&mut self, end: &K) -> Self {
        let later = self.0.split_off(end);
        Self(std::mem::replace(&mut self.0, later))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn take_before_takes_the_smaller_keys_only() {
        let (count, mut set) = (Arc::new(Count::default()), WakerSet::new());
        for key in [3, 1, 2] {
            assert!(set.insert(key, Waker::from(count.clone())).is_none());
        }
        set.take_before(&3).wake();
        assert_eq!((count.0.load(Ordering::SeqCst), set.first()), (2, Some(&3)));
        set.take_all().wake();
        assert_eq!((count.0.load(Ordering::SeqCst), set.is_empty()), (3, true));
    }
}
