//! A list that many threads push to, and from which one call takes all items. A check for items takes no lock.

use crate::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

pub(crate) struct Inbox<T> {
    items: Mutex<Vec<T>>,
    /// The number of items, readable without the lock. Stored under the lock.
    waiting: AtomicUsize,
}

impl<T> Inbox<T> {
    pub(crate) fn push(&self, item: T) {
        let mut items = self.items.lock();
        items.push(item);
        self.waiting.store(items.len(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Takes the newest item for which `fits` returns true. Looks at the 16 newest items only, to bound the time under
    /// the lock.
    pub(crate) fn take_last(&self, fits: impl FnMut(&T) -> bool) -> Option<T> {
        const SEARCHED: usize = 16;
        if self.is_empty() {
            return None;
        }
        let mut items = self.items.lock();
        let found = items.iter().rev().take(SEARCHED).position(fits)?;
        let at = items.len() - 1 - found;
        let item = items.remove(at);
        self.waiting.store(items.len(), Ordering::Release);
        Some(item)
    }

    /// Calls `look` with all items, under the lock.
    pub(crate) fn with_all<R>(&self, look: impl FnOnce(&[T]) -> R) -> R {
        look(&self.items.lock())
    }

    pub(crate) fn take(&self) -> Vec<T> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut items = self.items.lock();
        self.waiting.store(0, Ordering::Release);
        std::mem::take(&mut items)
    }
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), waiting: AtomicUsize::new(0) }
    }
}
