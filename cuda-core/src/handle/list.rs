//! A short list in place, which moves to the heap when it grows: what a launch fills and reads once.

use std::ops::Deref;

use arrayvec::ArrayVec;

pub(super) struct List<T, const N: usize> {
    inline: ArrayVec<T, N>,
    /// All items, once there are more than `N`.
    spilled: Vec<T>,
}

impl<T, const N: usize> List<T, N> {
    #[inline]
    pub(super) const fn new() -> Self {
        Self { inline: ArrayVec::new_const(), spilled: Vec::new() }
    }

    #[inline]
    pub(super) fn push(&mut self, item: T) {
        if self.spilled.is_empty() {
            match self.inline.try_push(item) {
                Ok(()) => {}
                Err(full) => self.spill(full.element()),
            }
        } else {
            self.spilled.push(item);
        }
    }

    #[cold]
    fn spill(&mut self, item: T) {
        self.spilled.reserve(4 * N);
        self.spilled.extend(self.inline.drain(..));
        self.spilled.push(item);
    }
}

impl<const N: usize> List<u8, N> {
    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if !self.spilled.is_empty() || self.inline.try_extend_from_slice(bytes).is_err() {
            bytes.iter().for_each(|byte| self.push(*byte));
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
