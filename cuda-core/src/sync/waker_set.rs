//! A set of wakers with keys: the one place where the library keeps the wakers of tasks that wait together.
//!
//! The set itself has no lock; its owner keeps it under one. Wakers are user code, so they are never cloned, woken or
//! dropped under that lock: methods give them back, and the owner lets them go after it has unlocked.
//!
//! Panics of user code, in wakers and in the payloads of panics, are isolated ([`wake_each`], [`discard_panic`]).

use std::{
    any::Any,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

use smallvec::SmallVec;

/// Wakers by key. Keys order the set; a task that waits again replaces its waker.
#[derive(Debug)]
pub struct WakerSet<K>(BTreeMap<K, Waker>);

impl<K> WakerSet<K> {
    /// An empty set.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether no task waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of tasks that wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set has a waker of the same task.
    pub fn has_waker_like(&self, waker: &Waker) -> bool {
        self.0.values().any(|known| known.will_wake(waker))
    }
}

impl<K: Ord> WakerSet<K> {
    /// Adds a waker, or replaces the one with this key. The caller drops the result without the lock.
    #[must_use = "a waker is dropped without the owner's lock"]
    pub fn insert(&mut self, key: K, waker: Waker) -> Option<Waker> {
        self.0.insert(key, waker)
    }

    /// Removes a waker. The caller drops it without the lock.
    #[must_use = "a waker is dropped without the owner's lock"]
    pub fn remove(&mut self, key: &K) -> Option<Waker> {
        self.0.remove(key)
    }

    /// The smallest key.
    pub fn first(&self) -> Option<&K> {
        self.0.first_key_value().map(|(key, _)| key)
    }

    /// Takes out the wakers whose key is below `end`.
    pub fn take_below(&mut self, end: &K) -> Woken {
        // The usual case, without an allocation.
        if self.0.last_key_value().is_none_or(|(key, _)| key < end) {
            return self.take_all();
        }
        let rest = self.0.split_off(end);
        Woken::of(std::mem::replace(&mut self.0, rest))
    }

    /// Takes out all wakers.
    pub fn take_all(&mut self) -> Woken {
        Woken::of(std::mem::take(&mut self.0))
    }
}

impl<K> Default for WakerSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Wakers that were taken out of a set. Dropping this wakes them, so a caller that holds a lock drops it afterwards.
#[derive(Debug, Default)]
#[must_use = "dropping this wakes the tasks; drop it without any lock"]
pub struct Woken(SmallVec<[Waker; 4]>);

impl Woken {
    fn of<K>(wakers: BTreeMap<K, Waker>) -> Self {
        Self(wakers.into_values().collect())
    }

    /// Wakes them now.
    pub fn wake(self) {
        drop(self);
    }

    /// The number of wakers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for Woken {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_empty() {
            wake_each(std::mem::take(&mut self.0));
        }
    }
}

/// Wakes each waker. A waker that panics does not keep the others asleep.
pub fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            discard_panic(payload);
        }
    }
}

/// Drops the payload of a panic, whose own drop may panic.
pub fn discard_panic(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // Its drop could panic again, without end.
        std::mem::forget(again);
    }
}

#[cfg(all(test, not(loom)))]
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
    fn take_below_takes_the_smaller_keys_only() {
        let (count, mut set) = (Arc::new(Count::default()), WakerSet::new());
        for key in [3, 1, 2] {
            assert!(set.insert(key, Waker::from(count.clone())).is_none());
        }
        set.take_below(&3).wake();
        assert_eq!((count.0.load(Ordering::SeqCst), set.first()), (2, Some(&3)));
        set.take_all().wake();
        assert_eq!((count.0.load(Ordering::SeqCst), set.is_empty()), (3, true));
    }
}

#[cfg(test)]
mod wakes_tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Bomb);
        }
    }

    struct Throws;

    impl Wake for Throws {
        fn wake(self: Arc<Self>) {
            std::panic::panic_any(Bomb);
        }
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn throw_and_count(count: &Arc<Count>) {
        wake_each([Waker::from(Arc::new(Throws)), Waker::from(count.clone())]);
    }

    #[test]
    fn panicking_waker_does_not_prevent_other_wakes() {
        let count = Arc::new(Count::default());
        throw_and_count(&count);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn wakers_are_woken_while_the_thread_unwinds() {
        struct Wakes(Arc<Count>);
        impl Drop for Wakes {
            fn drop(&mut self) {
                throw_and_count(&self.0);
            }
        }
        let count = Arc::new(Count::default());
        let wakes = Wakes(count.clone());
        let unwound = catch_unwind(AssertUnwindSafe(move || {
            let _wakes = wakes;
            panic!("on purpose");
        }));
        assert!(unwound.is_err());
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}
