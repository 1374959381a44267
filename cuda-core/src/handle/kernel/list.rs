//! A list that is stored inline and moves to the heap when it grows. A launch fills it and reads it once.

use std::ops::Deref;

use arrayvec::ArrayVec;

pub(super) struct List<T, const N: usize> {
    /// Full once the list has spilled, so that `push` checks this field only.
    inline: ArrayVec<T, N>,
    /// All items, once they do not fit in place.
    spilled: Vec<T>,
}

impl<T: Clone, const N: usize> List<T, N> {
    #[inline]
    pub(super) const fn new() -> Self {
        Self { inline: ArrayVec::new_const(), spilled: Vec::new() }
    }

    #[inline]
    pub(super) fn push(&mut self, item: T) {
        if let Err(full) = self.inline.try_push(item) {
            self.spill(&[full.element()]);
        }
    }

    #[cold]
    fn spill(&mut self, items: &[T]) {
        if self.spilled.is_empty() {
            self.spilled.reserve(4 * N);
            self.spilled.extend_from_slice(&self.inline);
        }
        self.spilled.extend_from_slice(items);
        while let (Some(item), false) = (items.first(), self.inline.is_full()) {
            self.inline.push(item.clone());
        }
    }
}

impl<T: Copy, const N: usize> List<T, N> {
    #[inline]
    pub(super) fn extend(&mut self, items: &[T]) {
        if self.inline.try_extend_from_slice(items).is_err() {
            self.spill(items);
        }
    }
}

impl<T, const N: usize> Deref for List<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        if self.spilled.is_empty() { &self.inline } else { &self.spilled }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn items_stay_in_order_when_the_list_spills() {
        let mut list = List::<u8, 4>::new();
        (0..3).for_each(|n| list.push(n));
        list.extend(&[3, 4, 5]);
        assert_eq!(list[..], [0, 1, 2, 3, 4, 5]);
        list.extend(&[6]);
        list.push(7);
        assert_eq!(list[..], [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
